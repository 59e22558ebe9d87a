package gateway

import (
	"net/http"
	"testing"
)

// TestTakesTrailers: a trailer goes to who asks for trailers, and to whole HTTP
// libraries; a client on raw sockets that asks for nothing is spared it.
func TestTakesTrailers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		want   bool
	}{
		"asks":        {http.Header{"Te": {"gzip;q=0.5, Trailers"}}, true},
		"negotiates":  {http.Header{"Accept-Encoding": {"gzip"}}, true},
		"wants none":  {http.Header{"Accept-Encoding": {"identity"}}, false}, // a bus before this one, and small clients
		"says no":     {http.Header{"Te": {"gzip"}}, false},
		"raw sockets": {nil, false},
	} {
		if got := takesTrailers(c.header); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
