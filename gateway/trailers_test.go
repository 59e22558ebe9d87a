package gateway

import (
	"net/http"
	"testing"
)

// TestTakesTrailers: a trailer goes to who asked for trailers, and to nobody
// else.
func TestTakesTrailers(t *testing.T) {
	t.Parallel()
	for te, want := range map[string]bool{
		"trailers": true, "Trailers": true, "gzip;q=0.5, trailers": true, "": false, "gzip": false, "no-trailers": false,
	} {
		if got := takesTrailers(http.Header{"Te": {te}}); got != want {
			t.Errorf("TE: %s: got %t, want %t", te, got, want)
		}
	}
	if takesTrailers(nil) {
		t.Error("who sends no TE is taken to read trailers")
	}
}
