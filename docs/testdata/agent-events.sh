cat >agentbus.yaml <<END
agents:
  echo: {kind: builtin, builtin: echo}
  eliza: {kind: builtin, builtin: eliza}
conversations:
  review: {participants: [{agent: echo}, {agent: eliza}], max_turns: 2}
END
export BUS=http://127.0.0.1:8080 KEY=$(agentbus keys create alice)
agentbus serve --quiet --conformance
