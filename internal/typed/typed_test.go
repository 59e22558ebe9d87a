package typed_test

import (
	"os/exec"
	"testing"

	"github.com/agentbus/agentbus/internal/require"
	"github.com/agentbus/agentbus/internal/typed"
)

// A shell reads a word as it was, and an operand as no flag.
func TestWords(t *testing.T) {
	t.Parallel()
	sh := require.Tool(t, "sh")
	for s, want := range map[string]string{
		"run_1": "run_1", "-x": "-- -x", "": "", "it's": "it's", "a b": "a b", "$(id)": "$(id)", "`id`": "`id`", `a\b`: `a\b`, "~": "~", "*": "*", "a;b&c|d>e": "a;b&c|d>e", "!!": "!!", "#x": "#x", "a#x": "a#x",
	} {
		out, err := exec.CommandContext(t.Context(), sh, "-c", `p() { printf %s "$1"; shift; for w; do printf ' %s' "$w"; done; }; p `+typed.Operand(s)).Output()
		if err != nil || string(out) != want {
			t.Errorf("%s is read as %q, %v", typed.Operand(s), out, err)
		}
	}
}
