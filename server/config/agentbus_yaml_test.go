package config_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/server/config"
)

// The file of agentbus init works at once: offline, without a variable, without
// a secret, without a warning.
func TestExampleLoadsWithoutAnEnvironment(t *testing.T) {
	t.Parallel()
	c, warnings := parse(t, string(config.Example()), source(nil))
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	if c.Agents["echo"].Builtin != "echo" || c.Agents["eliza"].Builtin != "eliza" || c.Agents["panel"].Conversation != "chat" {
		t.Errorf("agents: %+v", c.Agents)
	}
	if n := len(c.Conversations["chat"].Participants); n != 2 {
		t.Errorf("%d participants", n)
	}
	for _, s := range c.Settings() {
		inExample := strings.HasPrefix(s.Key, "agents.") || strings.HasPrefix(s.Key, "conversations.")
		if s.Origin != "default" && !inExample {
			t.Errorf("%s is set: %s", s.Key, s.Origin)
		}
	}
	golden(t, "agentbus.yaml", string(config.Example()))
}

var setting = regexp.MustCompile(`(?m)^#( *[-a-z])`)

// Each commented setting is right too: a line that begins with # and no space,
// as the head of the file says.
func TestExampleLoadsWithEverythingUncommented(t *testing.T) {
	t.Parallel()
	var lines []string
	for line := range strings.Lines(string(config.Example())) {
		if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") && line != "#\n" || strings.HasPrefix(line, "#  ") {
			line = line[1:]
		}
		lines = append(lines, line)
	}
	cert, key := certificate(t)
	src := config.Source{
		Env: env(map[string]string{
			"STS_TOKEN": "t", "STORE_PASSWORD": "p",
			"USER_KEY": "a", "SANDBOX_A_KEY": "b", "OPS_KEY": "c", "RESEARCHER_KEY": "d", "INTERN_KEY": "e", "INTROSPECTION_SECRET": "f", "ADMIN_TOKEN": "g",
		}),
		ReadFile: files(map[string]string{
			"/etc/agentbus/install.key": strings.Repeat("x", 32), "/etc/agentbus/sealing.key": strings.Repeat("y", 32), "/etc/agentbus/signing.key": strings.Repeat("z", 32), "/etc/agentbus/tls.crt": cert, "/etc/agentbus/tls.key": key, "/etc/agentbus/clients.crt": cert,
		}),
	}
	text := strings.Join(lines, "")
	if setting.MatchString(strings.ReplaceAll(text, "# ", "")) {
		t.Errorf("a setting is commented still:\n%s", text)
	}
	c, warnings := parse(t, text, src)
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	if len(c.Keys) != 4 || len(c.Agents) != 6 || len(c.Conversations) != 4 || c.Agents["researcher"].MaxCostUSD == nil || c.Conversations["chat"].BudgetUSD == nil || len(c.Budgets) != 3 {
		t.Errorf("%d keys, %d agents, %d conversations:\n%s", len(c.Keys), len(c.Agents), len(c.Conversations), text)
	}
	for _, s := range c.Settings() {
		if s.Origin == "default" && !strings.Contains(s.Key, "agents.") && !strings.Contains(s.Key, "conversations.") && !strings.HasPrefix(s.Key, "keys") && !strings.HasPrefix(s.Key, "budgets") && !strings.HasPrefix(s.Key, "auth.") && s.Key != "sealing.key_env" && s.Key != "trust.key_env" && s.Key != "trust.sts.token_file" && s.Key != "admin.token_file" && s.Key != "store.password_file" {
			t.Errorf("the example does not show %s", s.Key)
		}
	}
}
