package admin

import "net/http"

// Patterns returns the table of routes.
func (a *API) Patterns() []string {
	var patterns []string
	for _, r := range a.table() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// Forget serves a pattern whose line in the table names no roles.
func (a *API) Forget(pattern string) {
	a.routes[pattern] = route{pattern: pattern}
	a.mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
}

// WithUSD is withUSD.
func WithUSD(body string) string { return string(withUSD([]byte(body))) }

// Pages returns the table of the console's routes.
func (a *API) Pages() []string {
	var patterns []string
	for _, r := range a.pages() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// MaxSessions is maxSessions.
const MaxSessions = maxSessions
