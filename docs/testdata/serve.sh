agentbus init
export AGENTBUS_URL=http://127.0.0.1:8080 AGENTBUS_TOKEN=$(agentbus keys create alice)
agentbus serve --quiet
