package openwop

import (
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/internal/rawjson"
)

//go:embed openapi.json
var openAPI []byte

//go:embed events.schema.json
var eventSchema []byte

// EventSchema is the JSON Schema of the events that this product emits: each of
// them is valid in the schemas of the wire too (E1).
func EventSchema() []byte { return eventSchema }

// OpenAPI is the description of the routes (E4).
func OpenAPI() []byte { return openAPI }

// Serves reports whether a path is one of the wire's, in the spelling it has there.
func Serves(path string) bool {
	if httpx.Untidy(path) {
		return false
	}
	switch path {
	case "/.well-known/openwop", "/v1/openapi.json", "/v1/runs":
		return true
	}
	for _, prefix := range []string{"/v1/runs/", "/v1/workflows/", "/v1/interrupts/", "/v1/host/sample/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// ServeHTTP serves the routes of the wire. Every answer has an X-Request-Id.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Request-Id", httpx.NewRequestID())
	h.routes.ServeHTTP(w, r)
}

// A handler answers a request of a principal, or returns why not.
type handler func(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error

func (h *Host) mux() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /.well-known/openwop", h.discover)
	m.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openAPI)
	})
	route := func(pattern string, f handler) { m.Handle(pattern, h.known(f)) }
	route("POST /v1/runs", h.create)
	route("GET /v1/runs", h.list)
	route("GET /v1/runs/{id}", h.ofRun(h.read))
	route("POST /v1/runs/{id}", h.verb)
	route("GET /v1/runs/{id}/events", h.events)
	route("GET /v1/runs/{id}/events/poll", h.ofRun(h.poll))
	route("GET /v1/runs/{id}/vendor.agentbus.calls", h.ofRun(h.calls))
	route("POST /v1/runs/{id}/cancel", h.ofRun(h.cancelRun))
	route("POST /v1/runs/{id}/interrupts/{node}", h.ofRun(h.resolveNode))
	route("GET /v1/interrupts/{token}", h.readToken)
	route("POST /v1/interrupts/{token}", h.resolveToken)
	route("GET /v1/workflows/{id}", h.readWorkflow)
	if h.cfg.Conformance {
		h.seams(route)
	}
	route("/", func(w http.ResponseWriter, r *http.Request, _ agentbus.Principal) error {
		if allowed := httpx.Allowed(m, r); allowed != "" {
			return otherMethod(w, r, allowed)
		}
		return notFound("not_found", "there is no such route")
	})
	return m
}

// otherMethod refuses a request by its method.
func otherMethod(w http.ResponseWriter, r *http.Request, allowed string) error {
	w.Header().Set("Allow", allowed)
	return refuse(http.StatusMethodNotAllowed, "method_not_allowed", "this route takes %s, not %s", allowed, r.Method)
}

// known lets only those in whose principal is known (E2).
func (h *Host) known(f handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := h.cfg.Identify(r)
		if agentbus.CodeOf(err) == agentbus.CodeUnauthenticated {
			w.Header().Set("WWW-Authenticate", "Bearer")
			err = refuse(http.StatusUnauthorized, "unauthenticated", "send a key of the bus: Authorization: Bearer …")
		}
		if err == nil {
			err = f(w, r, p)
		}
		if err != nil {
			writeError(w, err)
		}
	})
}

// ofRun finds the run of the path, of the principal's own (E2).
func (h *Host) ofRun(f func(http.ResponseWriter, *http.Request, agentbus.Principal, *agentbus.Execution) error) handler {
	return func(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error {
		e, err := h.find(r, p, r.PathValue("id"))
		if err != nil {
			return err
		}
		return f(w, r, p, e)
	}
}

func (h *Host) find(r *http.Request, p agentbus.Principal, id string) (*agentbus.Execution, error) {
	e, found, err := h.cfg.Store.Execution(r.Context(), agentbus.ExecutionID(id))
	if err != nil {
		return nil, err
	}
	if !found || e.Payer != agentbus.Payer(p.ID) {
		return nil, errNoRun
	}
	return &e, nil
}

// verb serves POST /v1/runs/{id}:fork, the one route whose last segment has a
// verb.
func (h *Host) verb(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error {
	id, verb, named := strings.Cut(r.PathValue("id"), ":")
	if !named {
		return otherMethod(w, r, "GET, HEAD")
	}
	if verb != "fork" {
		return notFound("not_found", "there is no such route")
	}
	e, err := h.find(r, p, id)
	if err != nil {
		return err
	}
	return h.forkRun(w, r, p, e)
}

// body reads the body of a request; none is an empty object.
func (h *Host) body(r *http.Request, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, h.cfg.MaxBody))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return refuse(http.StatusRequestEntityTooLarge, "request_too_large", "the body has more than %d bytes", h.cfg.MaxBody)
		}
		return invalid("the body cannot be read")
	}
	if len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return invalid("the body is not the JSON that is wanted here")
	}
	return once(b)
}

// once refuses an object of which two members have one name, also where they differ
// in case alone: of two answers to an interrupt each reader would take another.
func once(b []byte) (err error) {
	at := rawjson.Space(b, 0)
	if at == len(b) || b[at] != '{' {
		return nil
	}
	seen := map[string]bool{}
	rawjson.Members(b, at, func(m rawjson.Member) bool {
		name := strings.ToLower(strings.ToUpper(string(m.Key))) // as encoding/json compares them
		if seen[name] {
			err = invalid("the member %.100q stands twice", m.Key)
		}
		seen[name] = true
		return err == nil
	})
	return err
}
