// Package gateway is the front door of agents: it reads the lineage of a call,
// decides whether it may pass and who pays, executes it once per turn, and
// proxies it. Its policy is the list of stages in [New], in the order a request
// meets them (G2).
//
// A [Gateway] is an http.Handler. What it needs to know comes by [Config]: the
// agents by a [Router], which [NewTable] makes of a list of [Target]; the callers
// by an [Identifier], of package identity; a [Ledger] and a [Recorder], which each
// store is. Package server puts all of this together from a configuration.
package gateway

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A Stage is one step of the gateway's policy. It adds to what is known of the
// request, or ends it.
type Stage struct {
	Name string
	Wrap func(http.Handler) http.Handler
}

// A Gateway is the public surface of the bus as an http.Handler. Requests that
// execute may outlive their callers (G14); the http.Server that runs the
// Gateway waits for them in Shutdown, and [Gateway.Abort] ends them.
type Gateway struct {
	*live

	cfg    Config
	stages []Stage
	mux    *http.ServeMux
	call   http.Handler // all stages
	card   http.Handler // those before a card is served
	a2a    http.Handler // those before an A2A request is counted, and serveA2A
	rest   http.Handler // those that remain for one
	log    *slog.Logger
}

// live is what outlasts a change of the configuration: everything that is about
// calls and not about how they are treated. It is shared by a Gateway and those
// that come after it.
type live struct {
	began    time.Time // when the first Gateway was made
	flights  flights
	funds    *funds        // of calls that wait for a budget
	spent    spent         // of accounts
	listing  listing       // of refusals
	late     late          // attempts that are still to be voided
	slots    chan struct{} // one for each call that goes on without its caller
	lines    lines         // who waits for which agent
	rates    rates         // how much each caller may call
	portions portions      // of what it may call over all processes
	stopped  stops         // runs
	drained  drains        // agents
	tasks    tasks         // of A2A agents
	// unreported are the agents, by name, that the log has warned of; see unpriced.
	unreported sync.Map
	inFlight   atomic.Int64
	draining   atomic.Bool
}

// New returns a Gateway. It reports every fault of the configuration at once.
func New(c Config) (*Gateway, error) { return build(c, nil) }

// Reconfigured returns a Gateway that treats requests as c says and has g's
// calls in common with it (G30): duplicates of a call that g serves attach to it,
// what counts against limits counts on, and both drain and abort together. The
// requests that g serves end as they began. DetachMax stays what it was.
func (g *Gateway) Reconfigured(c Config) (*Gateway, error) {
	next, err := build(c, g.live)
	if err == nil {
		g.lines.reconfigure(c.Router)
	}
	return next, err
}

func build(c Config, calls *live) (*Gateway, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.setDefaults()
	if calls == nil {
		calls = &live{began: time.Now(), flights: newFlights(), tasks: newTasks(), funds: newFunds(), spent: spent{byAccount: map[string]agentbus.Micros{}}, slots: make(chan struct{}, max(c.DetachMax, 0))}
	}
	g := &Gateway{live: calls, cfg: c, mux: http.NewServeMux(), log: c.Logger}
	g.stages = []Stage{ // the gateway's whole policy, in the order a request meets it (G2)
		{"recover", g.recover},     // a panic costs one call, not the process
		{"record", g.record},       // every hop leaves a record and a line in the log
		{"limits", g.limits},       // the body is read, within bounds, or 413
		{"lineage", g.lineage},     // headers become a Lineage, or 400
		{"identify", g.identify},   // who calls, or 401
		{"payer", g.payer},         // who is billed, or 401 and 403
		{"route", g.route},         // which agent is meant, or 404
		{"authorize", g.authorize}, // whether this caller may call it, or 403
		{"depth", g.depth},         // 429 bridge_depth_exceeded
		{"chain", g.chain},         // 400 for a depth or hop that its parent belies, 429 cycle_refused and chain_final
		{"ledger", g.ledger},       // a duplicate of a call in flight attaches to it
		{"admit", g.admit},         // 429 and 503 when the caller's rate or the agent has no room
		{"reserve", g.reserve},     // a finished one is answered from memory; the rest is reserved, durably
		{"proxy", g.proxy},         // the agent is called, its answer stored, settled and passed on
	}
	g.routes()
	return g, nil
}

// Stages returns the names of the stages in their order.
func (g *Gateway) Stages() []string {
	names := make([]string, len(g.stages))
	for i, s := range g.stages {
		names[i] = s.Name
	}
	return names
}

// through wraps h into the stages up to the named one.
func (g *Gateway) through(last string, h http.Handler) http.Handler {
	n := 0
	for g.stages[n].Name != last {
		n++
	}
	for i := n; i >= 0; i-- {
		h = g.stages[i].Wrap(h)
	}
	return h
}

// from wraps h into the stages from the named one on.
func (g *Gateway) from(first string, h http.Handler) http.Handler {
	for i := len(g.stages) - 1; ; i-- {
		if h = g.stages[i].Wrap(h); g.stages[i].Name == first {
			return h
		}
	}
}

// routes builds the public surface (section 1 of the gateway's rules).
func (g *Gateway) routes() {
	g.call = g.through("proxy", nil)
	g.rest = g.from("chain", nil)
	g.card = g.through("lineage", http.HandlerFunc(g.serveCard))
	g.mux.Handle("GET /.well-known/agent-card.json", g.card)
	g.a2a = g.through("depth", http.HandlerFunc(g.serveA2A))
	g.mux.Handle("POST /v1/chat/completions", g.call)
	g.mux.Handle("POST /v1/responses", g.call)
	for path, document := range g.cfg.WellKnown {
		g.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "public, max-age=300")
			_, _ = w.Write(document) // a caller that left is its own loss
		})
	}
	list := g.through("identify", http.HandlerFunc(g.listModels))
	g.mux.Handle("GET /v1/models", list)
	g.mux.Handle("GET /v1/models/{id...}", g.through("identify", http.HandlerFunc(g.showModel)))
	g.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, map[string]any{"status": "ok"}) })
	g.mux.HandleFunc("GET /readyz", g.readyz)
	g.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, map[string]any{"name": "agentbus", "version": g.cfg.Version, "protocol": "0"})
	})
	g.mux.HandleFunc("GET /openapi.json", showDocument)
	if d := g.cfg.Directory; d != nil {
		g.mux.Handle("GET /.well-known/webfinger", d)
		g.mux.Handle("GET /.well-known/agent-card/{local}", d)
	}
	g.mux.HandleFunc("/", g.notServed)
}

// notServed refuses what no route takes: by its method, when its path is served by
// another one (RFC 9110, section 15.5.6).
func (g *Gateway) notServed(w http.ResponseWriter, r *http.Request) {
	allowed := httpx.Allowed(g.mux, r)
	if allowed == "" {
		nothingHere(w, r)
		return
	}
	w.Header().Set("Allow", allowed)
	e := &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: "this path does not take " + r.Method,
		Explain: &agentbus.Explain{Supported: strings.Split(allowed, ", "), Next: "send one of the methods that it takes"},
	}
	httpx.WriteErrorAs(w, e, http.StatusMethodNotAllowed, "application/json", httpx.ErrorBody(agentbus.Lineage{}, e))
}

// nothingHere says where what was asked may be: most clients show their users the
// message alone. It names paths of the OpenAI API; of others, such as those of the
// admin surface, the public one says nothing.
func nothingHere(w http.ResponseWriter, r *http.Request) {
	asked, path := plainID(r.Method), plainID(r.URL.EscapedPath())
	next := "call POST /v1/chat/completions, POST /v1/responses, GET /v1/models, /agents/NAME/… or /a2a/NAME"
	below, api := strings.CutPrefix(path, "/v1/")
	if api || servesBelow(path) {
		asked += " " + path
	}
	switch {
	case strings.HasSuffix(path, "/") && servesBelow("/"+strings.TrimSuffix(below, "/")):
		next = "write the path without the slash at its end"
	case httpx.Untidy(r.URL.Path):
		next = "write the path without empty segments or dots"
	case api && below == "completions":
		next = "send messages to POST " + chatPath
	case api:
		next = "an agent that has it is called at /agents/NAME/" + below
	case servesBelow(path):
		next = "the base URL of an OpenAI client ends in /v1"
	}
	httpx.WriteError(w, agentbus.Lineage{}, &agentbus.Error{
		Code: agentbus.CodeAgentNotFound, Message: "there is no " + asked + " here; " + next, Explain: &agentbus.Explain{Next: next},
	})
}

// servesBelow reports whether a path is one of the OpenAI API without its /v1.
func servesBelow(path string) bool {
	return path == "/chat/completions" || path == "/responses" || path == "/models"
}

// ServeHTTP serves the public surface. A path below /agents is the agent's to
// understand: a ServeMux would redirect one that looks untidy to it, such as
// a//b. Elsewhere there is nothing at such a path. What nearly every call comes
// by needs no search.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.cfg.A2A.Compat {
		r = asNow(r)
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == chatPath && r.URL.RawPath == "": // as it is written, that is
		r.Pattern = "POST " + chatPath // as the ServeMux would
		g.call.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.EscapedPath(), agentsPrefix):
		g.call.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.EscapedPath(), a2aPrefix):
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.HasSuffix(strings.TrimRight(r.URL.EscapedPath(), "/"), cardPath) {
			g.card.ServeHTTP(w, r)
			return
		}
		g.a2a.ServeHTTP(w, r)
	case httpx.Untidy(r.URL.Path):
		nothingHere(w, r)
	default:
		g.mux.ServeHTTP(w, r)
	}
}

const chatPath = "/v1/chat/completions"

// agentsPrefix is where the agents' own APIs begin: /agents/{name}/{path…}.
const agentsPrefix = "/agents/"

// Drain refuses new requests from now on, and makes the gateway not ready.
func (g *Gateway) Drain() { g.draining.Store(true) }

var errDraining = &agentbus.Error{
	Code: agentbus.CodeDraining, Message: "this bus is shutting down",
	Explain: &agentbus.Explain{Rule: "G31", Next: "send the same turn again after the given time"},
}

// Abort ends every call that is being executed, for a shutdown whose patience
// is over. Their attempts are voided.
func (g *Gateway) Abort() {
	g.flights.abort(errAborted, func(agentbus.RunID) bool { return true })
}

func (g *Gateway) readyz(w http.ResponseWriter, r *http.Request) {
	if g.draining.Load() {
		httpx.WriteError(w, agentbus.Lineage{}, errDraining)
		return
	}
	if g.cfg.Ready != nil {
		if err := g.cfg.Ready(r.Context()); err != nil {
			g.log.LogAttrs(r.Context(), slog.LevelWarn, "not ready", slog.Any("error", err))
			httpx.WriteError(w, agentbus.Lineage{}, err)
			return
		}
	}
	body := map[string]any{"status": "ready"}
	if g.cfg.Degraded != nil {
		if why := g.cfg.Degraded(); len(why) > 0 {
			body["degraded"] = why
		}
	}
	answerJSON(w, body)
}

// listModels answers with the agents that the caller may call, as models of the
// OpenAI dialect (G1).
func (g *Gateway) listModels(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	x.record.Status = http.StatusOK
	models := []any{}
	for _, t := range g.callable(x) {
		models = append(models, model(t))
	}
	x.echo(w.Header())
	answerJSON(w, map[string]any{"object": "list", "data": models})
}

func (g *Gateway) showModel(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	t, ok := g.cfg.Router.Route(r.PathValue("id"))
	if !ok || !x.mayCall(t.Name) {
		x.refuse(w, g.agentNotFound(x, r.PathValue("id")))
		return
	}
	x.record.Status = http.StatusOK
	x.echo(w.Header())
	answerJSON(w, model(t))
}

func model(t *Target) map[string]any {
	return map[string]any{"id": t.Name, "object": "model", "created": 0, "owned_by": "agentbus"}
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if w.Header().Get("X-Request-Id") == "" { // a route outside the stages
		w.Header().Set("X-Request-Id", httpx.NewRequestID())
	}
	_ = json.NewEncoder(w).Encode(v) // a caller that left is its own loss
}
