package httpx

import "net/http"

// Arrived reports whether the body of r has come whole, as most have with their
// head, so that to read it does not wait. It knows so of requests that a server
// of internal/http1 read; the others have not. It is for the Handler that serves
// r, before it has read the body to its end.
func Arrived(r *http.Request) bool {
	b, ok := r.Body.(interface{ Arrived() bool })
	return ok && b.Arrived() || r.Body == http.NoBody
}
