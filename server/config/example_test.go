package config_test

import (
	"fmt"

	"github.com/agentbus/agentbus/server/config"
)

func ExampleParse() {
	const file = `
limits:
  max_dept: 6
agents:
  critic: {kind: openai, url: "http://127.0.0.1:9001/v1", api_key_env: CRITIC_KEY}
`
	_, _, err := config.Parse("agentbus.yaml", []byte(file), config.Source{
		Env: func(string) (string, bool) { return "", false },
	})
	fmt.Println(err)
	// Output:
	// agentbus.yaml:3:3: limits.max_dept: there is no such key; did you mean max_depth?
	// agentbus.yaml:5:72: agents.critic.api_key_env: the environment variable CRITIC_KEY is not set or holds nothing; put the secret into it
}
