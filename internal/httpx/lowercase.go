package httpx

import (
	"net/http"
	"strings"

	"github.com/agentbus/agentbus"
)

// Lowercase returns a transport that hands requests to next with the headers of
// the protocol named as P1 writes them. net/http capitalises names, and there are
// runtimes that look up the exact case: for them a depth that is spelled otherwise
// is none. Closing its idle connections closes those of next.
func Lowercase(next http.RoundTripper) http.RoundTripper { return lowercased{next} }

type lowercased struct{ next http.RoundTripper }

// RoundTrip sends r.
func (l lowercased) RoundTrip(r *http.Request) (*http.Response, error) {
	return l.next.RoundTrip(lowercase(r)) //nolint:wrapcheck // it stands in for us
}

// CloseIdleConnections is for http.Client.
func (l lowercased) CloseIdleConnections() {
	if next, ok := l.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}

// lowercase returns r with the headers of the protocol named so. A RoundTripper
// leaves the header of r as it is.
func lowercase(r *http.Request) *http.Request {
	named := *r
	named.Header = make(http.Header, len(r.Header))
	for name, values := range r.Header {
		if agentbus.IsProtocolHeader(name) {
			name = strings.ToLower(name)
		}
		named.Header[name] = values
	}
	return &named
}
