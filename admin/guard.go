package admin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A request is what is known of a request beside the request itself.
type request struct {
	id     string
	who    agentbus.Principal // the zero Principal before it is authenticated
	object string             // what a mutation changed, or was to change
	did    deed
	csrf   string // of the session of a page; "": there is none
	err    error  // what was answered
	status int    // of that; 0: that of its code
}

type requestKey struct{}

// requestOf returns what the guard found of r.
func requestOf(r *http.Request) *request {
	x, _ := r.Context().Value(requestKey{}).(*request) // every request came through ServeHTTP
	return x
}

// ServeHTTP serves the admin listener: it lets a request pass whose host,
// origin, credential and role are right, and says no to every other one.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &request{id: httpx.NewRequestID()}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, x))
	h := w.Header()
	h.Set("X-Request-Id", x.id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	defer a.audit(x, r)
	_, pattern := a.mux.Handler(r)
	if err := a.admit(x, w, r, pattern); err != nil {
		a.fail(w, r, pattern, err)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// fail answers with an error, as whoever asked reads it.
func (a *API) fail(w http.ResponseWriter, r *http.Request, pattern string, err error) {
	if isPage(pattern) {
		a.failPage(w, r, err)
		return
	}
	requestOf(r).fail(w, err)
}

// admit decides whether a request may pass. Whoever is no admin learns nothing
// of what is here: not even which routes are.
func (a *API) admit(x *request, w http.ResponseWriter, r *http.Request, pattern string) (err error) {
	if err := rightHost(r); err != nil {
		return err
	}
	if err := a.origins.Check(r); err != nil {
		return &agentbus.Error{
			Code: agentbus.CodeForbidden, Message: "a page of another origin may not change anything here", Err: err,
			Explain: &agentbus.Explain{Next: "send the request from a program, without Origin and Sec-Fetch-Site"},
		}
	}
	rt, known := a.routes[pattern]
	switch {
	case slices.Contains(rt.roles, anyone):
		return nil
	case isPage(pattern):
		x.who, err = a.signedIn(x, w, r)
	default:
		x.who, err = a.identify(r)
	}
	switch {
	case err != nil:
		return err
	case slices.Contains(rt.roles, x.who.Role):
		return nil
	case !known && slices.Contains(operators, x.who.Role):
		return a.unserved(x, w, r)
	}
	return errNoOperator()
}

// unserved says why no route takes a request: its path is served by another
// method (RFC 9110, section 15.5.6), or by none.
func (a *API) unserved(x *request, w http.ResponseWriter, r *http.Request) error {
	allowed := httpx.Allowed(a.mux, r)
	if allowed == "" {
		return listedAt("GET /openapi.json", &agentbus.Error{Code: agentbus.CodeNotFound, Message: "there is no " + r.Method + " " + r.URL.Path})
	}
	w.Header().Set("Allow", allowed)
	x.status = http.StatusMethodNotAllowed
	return &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: "this path does not take " + r.Method,
		Explain: &agentbus.Explain{Supported: strings.Split(allowed, ", "), Next: "send one of the methods that it takes"},
	}
}

func errNoOperator() error {
	return &agentbus.Error{
		Code: agentbus.CodeForbidden, Message: "this key may not operate the bus",
		Explain: &agentbus.Explain{Next: "use the key of an admin: role: admin in the configuration, or agentbus keys create NAME --role admin"},
	}
}

// rightHost refuses a request that reached this machine from itself under a
// name that is not its own: a page whose name was made to point here would send
// it.
func rightHost(r *http.Request) error {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && !httpx.Loopback(hostOf(addr.String())) {
		return nil // it serves other machines, under whatever name
	}
	if host := hostOf(r.Host); !httpx.Loopback(host) {
		return &agentbus.Error{
			Code: agentbus.CodeForbidden, Message: "the host of this request is not this machine",
			Explain: &agentbus.Explain{Observed: host, Supported: []string{"127.0.0.1", "[::1]", "localhost"}, Next: "call the admin listener by its address; a proxy before it sets Host to that"},
		}
	}
	return nil
}

// hostOf returns what stands before the port of a host and port.
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil { // there is no port
		return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return host
}

// identify authenticates a request of the API, by its Authorization header
// alone: not by a cookie, which a browser would send by itself.
func (a *API) identify(r *http.Request) (agentbus.Principal, error) {
	values := r.Header["Authorization"]
	if len(values) > 1 {
		return agentbus.Principal{}, &agentbus.Error{
			Code: agentbus.CodeDuplicateHeader, Message: "Authorization must be sent once",
			Explain: &agentbus.Explain{Rule: "P2", Next: "send one Authorization header"},
		}
	}
	return a.principal(r.Context(), agentbus.NewCredential(r.Header.Get("Authorization")))
}

// audit writes down who changed what, or tried to, and what broke. It is a
// warning, so that it is kept where only warnings are.
func (a *API) audit(x *request, r *http.Request) {
	code := agentbus.CodeOf(x.err)
	broke := x.err != nil && code.Status() >= http.StatusInternalServerError
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && !broke {
		return
	}
	_, pattern := a.mux.Handler(r)
	attrs := []slog.Attr{
		slog.String("action", pattern), slog.String("object", x.object), slog.String("by", x.who.ID),
		slog.String("code", string(code)), slog.String("request_id", x.id), slog.String("remote", r.RemoteAddr),
	}
	if broke {
		attrs = append(attrs, slog.Any("error", x.err))
	}
	a.log.LogAttrs(r.Context(), slog.LevelWarn, "admin", attrs...)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		a.record(x, pattern, r)
	}
}
