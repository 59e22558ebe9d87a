cat >agentbus.yaml <<END
agents:
  critic: {kind: builtin, builtin: echo}
  writer: {kind: builtin, builtin: eliza}
END
export BUS=http://127.0.0.1:8080 ALICE_KEY=$(agentbus keys create alice)
agentbus serve --quiet
