package httpx_test

import (
	"net/url"
	"testing"

	"github.com/agentbus/agentbus/internal/httpx"
)

// A name of any spelling (P4) stands in a path, and is read from there.
func TestSegment(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, name := range []string{".", "..", "...", ",.", ",,.", ",..", ",", ",a", "a", "%2e", "a/b", "é", ".,", ""} {
		segment := httpx.Segment(name)
		u, err := url.Parse("http://bus/runs/" + segment + "/stop")
		if err != nil {
			t.Fatal(err)
		}
		if got := u.JoinPath().EscapedPath(); got != "/runs/"+segment+"/stop" && name != "" {
			t.Errorf("%q is resolved to %s", name, got)
		}
		plain, err := url.PathUnescape(segment)
		if got := httpx.Named(plain); got != name || err != nil {
			t.Errorf("%q is read as %q, %v", name, got, err)
		}
		if other, taken := seen[segment]; taken {
			t.Errorf("%q and %q are both %s", name, other, segment)
		}
		seen[segment] = name
	}
}
