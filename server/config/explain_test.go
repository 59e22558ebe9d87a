package config_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/server/config"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test -update writes it:\n%s", path, diff)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, `limits: {max_body: 1MiB}
keys: [{id: user-123, secret_env: USER_KEY}]
agents:
  researcher:
    kind: openai
    url: https://agents.example.com/v1
    aliases: [r, s]
    headers: {x-team: search}
    price: {input: 0.15}
  echo: {kind: builtin, builtin: echo}
conversations:
  chat: {participants: [{agent: researcher}, {agent: echo}], budget_usd: 0.5}
`, source(map[string]string{"USER_KEY": "s", "AGENTBUS_LISTEN": "127.0.0.1:9", "CLI_BRIDGE_MAX_DEPTH": "6"}))
	golden(t, "explain.txt", config.Explain(c))
}

func TestSettingsAsJSON(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, "limits:\n  max_depth: 5\n", source(nil))
	out, err := json.Marshal(c.Settings())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"key":"limits.max_depth","value":"5","origin":"agentbus.yaml:2","default":"4","env":"CLI_BRIDGE_MAX_DEPTH","doc":"A call that arrives at this depth is refused (P10)."}`
	if !strings.Contains(string(out), want) {
		t.Errorf("%s\nlacks %s", out, want)
	}
}

// A value that explain prints can be written into a file: it reads as itself.
func TestWhatIsExplainedCanBeWritten(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, "", source(nil))
	for _, s := range c.Settings() {
		section, key, nested := strings.Cut(s.Key, ".")
		text := s.Key + ": " + s.Value
		if nested {
			text = section + ":\n  " + key + ": " + s.Value
		}
		if s.Value == "" {
			continue
		}
		again, _ := parse(t, text, source(nil))
		if diff := cmp.Diff(values(c), values(again)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func values(c *config.Config) map[string]string {
	m := map[string]string{}
	for _, s := range c.Settings() {
		m[s.Key] = s.Value
	}
	return m
}

// Each key can be asked for by itself, set or not, with what is below it.
func TestTopic(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, `limits: {max_depth: 5}
keys: [{id: user-123, secret_env: USER_KEY}]
agents: {echo: {kind: builtin, builtin: echo, price: {call: 0.001}}}
`, source(map[string]string{"USER_KEY": "s"}))
	var told strings.Builder
	for _, key := range []string{
		"limits.max_depth", "retention", "agents.echo", "agents.echo.price.input", "agents.other.output", "agents.other.manifest", "keys[0].secret", "keys[7].id",
		"conversations", "conversations.chat.participants[0].auth", "tls", "budgets[].usd", "budgets.usd", "keys[x]", "resolver.domains", "agents.echo.headers.x-team",
		"limit.max_depth", "limits.max_dept", "limits.x", "listen.x", "", "..", "agents.echo.price.call.x", "agents[0].url", "conversations.[1]",
	} {
		told.WriteString("$ " + key + "\n")
		topic, err := c.Topic(key)
		if err != nil {
			told.WriteString(err.Error() + "\n")
			continue
		}
		told.WriteString(topic.String())
	}
	golden(t, "topics.txt", told.String())
	for _, s := range c.Settings() { // what is told of all is told of each
		topic, err := c.Topic(s.Key)
		if err != nil || len(topic.Settings) == 0 || topic.Settings[0] != s {
			t.Errorf("%s: %v, %+v, want %+v", s.Key, err, topic.Settings, s)
		}
	}
}
