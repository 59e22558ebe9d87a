package admin

import (
	"net/http"
	"net/http/pprof" // its own routes, on the DefaultServeMux, are served by nobody

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A handler answers a request, or says why not before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

// A route is a line of the table: what is served to whom.
type route struct {
	pattern string // method and path, as http.ServeMux reads them
	roles   []agentbus.PrincipalRole
	handle  handler
}

// operators are who may use the admin listener.
var operators = []agentbus.PrincipalRole{agentbus.PrincipalAdmin}

// table returns every route of the API; the console's are [API.pages].
func (a *API) table() []route {
	routes := []route{
		{"GET /admin/v1/runs", operators, a.listRuns},
		{"GET /admin/v1/runs/{run}", operators, a.showRun},
		{"GET /admin/v1/runs/{run}/tree", operators, a.listTree},
		{"GET /admin/v1/runs/{run}/calls", operators, a.listCalls},
		{"GET /admin/v1/runs/{run}/executions", operators, a.listExecutions},
		{"POST /admin/v1/runs/{run}/stop", operators, a.stopRun},
		{"POST /admin/v1/runs/{run}/resume", operators, a.resumeRun},
		{"POST /admin/v1/runs/{run}/fork", operators, a.forkRun},
		{"POST /admin/v1/runs/{run}/replay", operators, a.replayRun},
		{"GET /admin/v1/executions/{id}/turns", operators, a.listTurns},
		{"GET /admin/v1/executions/{id}/events", operators, a.listEvents},
		{"GET /admin/v1/calls/live", operators, a.listLive},
		{"GET /admin/v1/live/runs", operators, a.followRuns},
		{"GET /admin/v1/live/calls", operators, a.followCalls},
		{"GET /admin/v1/calls/unfinished", operators, a.listUnfinished},
		{"GET /admin/v1/calls/{id}/recording", operators, a.showRecording},
		{"POST /admin/v1/calls/{id}/void", operators, a.voidCall},
		{"GET /admin/v1/interrupts", operators, a.listInterrupts},
		{"GET /admin/v1/interrupts/{id}", operators, a.showInterrupt},
		{"POST /admin/v1/interrupts/{id}/resolve", operators, a.resolveInterrupt},
		{"GET /admin/v1/agents", operators, a.listAgents},
		{"GET /admin/v1/agents/{name}", operators, a.showAgent},
		{"POST /admin/v1/agents/{name}/probe", operators, a.probeAgent},
		{"POST /admin/v1/agents/{name}/drain", operators, a.drainAgent},
		{"POST /admin/v1/agents/{name}/enable", operators, a.enableAgent},
		{"GET /admin/v1/records", operators, a.listRecords},
		{"GET /admin/v1/graph", operators, a.showGraph},
		{"GET /admin/v1/payers", operators, a.listPayers},
		{"GET /admin/v1/payers/{payer}", operators, a.showPayer},
		{"GET /admin/v1/remarks", operators, a.listRemarks},
		{"GET /admin/v1/actions", operators, a.listActions},
		{"GET /admin/v1/health", operators, a.showVitals},
		{"GET /admin/v1/keys", operators, a.listKeys},
		{"POST /admin/v1/keys", operators, a.createKey},
		{"DELETE /admin/v1/keys/{handle}", operators, a.revokeKey},
		{"GET /admin/v1/budgets", operators, a.listBudgets},
		{"GET /admin/v1/ledger/balances", operators, a.listBalances},
		{"GET /admin/v1/ledger/entries", operators, a.listEntries},
		{"GET /admin/v1/ledger/export", operators, a.exportEntries},
		{"POST /admin/v1/ledger/verify", operators, a.verifyLedger},
		{"GET /admin/v1/status", operators, a.showStatus},
		{"GET /openapi.json", operators, showDocument},
	}
	if a.cfg.Metrics != nil {
		routes = append(routes, route{"GET /metrics", operators, plain(a.cfg.Metrics)})
	}
	if a.cfg.Profile {
		routes = append(routes,
			route{"GET /debug/pprof/", operators, plain(http.HandlerFunc(pprof.Index))},
			route{"GET /debug/pprof/cmdline", operators, plain(http.HandlerFunc(pprof.Cmdline))},
			route{"GET /debug/pprof/profile", operators, plain(http.HandlerFunc(pprof.Profile))},
			route{"GET /debug/pprof/symbol", operators, plain(http.HandlerFunc(pprof.Symbol))},
			route{"GET /debug/pprof/trace", operators, plain(http.HandlerFunc(pprof.Trace))},
		)
	}
	return routes
}

// plain is a handler of net/http, which writes its own errors.
func plain(h http.Handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		h.ServeHTTP(w, r)
		return nil
	}
}

// answer runs the handler of a route, and writes the error it returns.
func (a *API) answer(w http.ResponseWriter, r *http.Request, rt route) {
	for _, name := range [...]string{"run", "payer"} { // callers choose them
		if v := r.PathValue(name); v != "" {
			r.SetPathValue(name, httpx.Named(v))
		}
	}
	if err := rt.handle(w, r); err != nil {
		a.fail(w, r, rt.pattern, err)
	}
}

// notFound says that there is nothing here under this name.
func notFound(what, next string) error {
	return &agentbus.Error{Code: agentbus.CodeNotFound, Message: "there is no " + what, Explain: &agentbus.Explain{Next: next}}
}

func invalid(message, next string) error {
	return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: message, Explain: &agentbus.Explain{Next: next}}
}

// A listed is an error whose advice is the route that lists what there is, for
// programs: a page has links.
type listed struct{ err *agentbus.Error }

func listedAt(route string, e *agentbus.Error) error {
	e.Explain = &agentbus.Explain{Next: "see " + route}
	return &listed{e}
}

func (l *listed) Error() string { return l.err.Error() }

// Unwrap returns what callers of the API are told.
func (l *listed) Unwrap() error { return l.err }

// fail writes err, and keeps its code for the audit.
func (x *request) fail(w http.ResponseWriter, err error) {
	x.err = err
	httpx.WriteProblem(w, err, x.status)
}

// Routes returns the pattern of every route of the listener, for who checks that
// none of them answers elsewhere.
func (a *API) Routes() []string {
	var patterns []string
	for _, r := range append(a.table(), a.pages()...) {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
