package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/server/config"
)

// A file that is large or deep is refused, not choked on.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	many := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"brackets":     "tools: " + strings.Repeat("[", 100_000),
		"deep":         "tools: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "\nx: 1",
		"many unknown": many("k%d: 1\n", 10_000),
		"many agents":  "agents:\n" + many("  a%d: {}\n", 10_000),
		"many keys":    "keys:\n" + many("  - {id: a, secret_env: K%d}\n", 10_000),
		"many aliases": "a: &a x\n" + many("k%d: *a\n", 10_000),
		"one line":     "listen: " + strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := config.Parse("agentbus.yaml", []byte(text), source(nil)); err == nil || err.Error() == "" {
				t.Errorf("Parse: %v", err)
			}
		})
	}
}
