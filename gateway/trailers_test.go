package gateway

import (
	"net/http"
	"testing"
)

// TestTakesTrailers: every client gets the trailer, but for the one that is
// known to misread it and does not ask for it.
func TestTakesTrailers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		agent, te string
		want      bool
	}{
		{"", "", true}, {"curl/8", "", true}, {"agentbus-bench", "", false}, {"agentbus-bench/2", "gzip", false}, {"agentbus-bench", "gzip, Trailers", true},
	} {
		if got := takesTrailers(http.Header{"User-Agent": {c.agent}, "Te": {c.te}}); got != c.want {
			t.Errorf("User-Agent: %s, TE: %s: got %t, want %t", c.agent, c.te, got, c.want)
		}
	}
}
