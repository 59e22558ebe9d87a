package httpx

import (
	"net/http"
	"strings"
)

var methods = [...]string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// Allowed returns the methods that m serves the path of r by, as the header Allow
// names them; "" when the path is served by none. The pattern "/", which takes what
// no other does, does not count: a ServeMux that has it says nothing of methods.
func Allowed(m *http.ServeMux, r *http.Request) string {
	var allowed []string
	for _, method := range methods {
		if _, pattern := m.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host}); pattern != "" && pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	return strings.Join(allowed, ", ")
}
