package admin_test

import (
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/openapi"
)

// Every route is in the document, and the document names nothing else.
func TestDocumentNamesEveryRoute(t *testing.T) {
	t.Parallel()
	patterns := open(t, nil).api.Patterns()
	slices.Sort(patterns)
	if diff := cmp.Diff(patterns, openapi.Read(t, "openapi.json").Operations(t)); diff != "" {
		t.Errorf("routes (-served +documented):\n%s", diff)
	}
}

// Whatever is stored of a run can be read as the document says.
func TestDocumentDescribesWhatIsStored(t *testing.T) {
	t.Parallel()
	d := openapi.Read(t, "openapi.json")
	for name, v := range map[string]any{
		"Ask": agentbus.Ask{}, "Call": agentbus.CallRecord{}, "Chain": agentbus.AgentChain{}, "Entry": agentbus.Entry{}, "Event": agentbus.Event{},
		"Execution": agentbus.Execution{}, "Failure": agentbus.Error{}, "Halt": agentbus.Halt{}, "Interrupt": agentbus.Interrupt{}, "LowConfidence": agentbus.LowConfidence{},
		"Reply": agentbus.Reply{}, "Resolution": agentbus.Resolution{}, "Run": agentbus.RunSummary{}, "Turn": agentbus.Turn{}, "Usage": agentbus.Usage{}, "Wait": agentbus.Wait{},
	} {
		d.Describes(t, name, v)
	}
}

// What each route answers is what the document says.
func TestAnswersAreAsDocumented(t *testing.T) {
	t.Parallel()
	d, b := openapi.Read(t, "openapi.json"), open(t, nil)
	b.fill()
	ask := func(method, pattern, path, body string, status int) {
		t.Helper()
		a := b.request(method, path, adminKey, body)
		if a.status != status {
			t.Errorf("%s %s: %d %s, want %d", method, path, a.status, a.body, status)
		}
		d.Check(t, method, pattern, openapi.Answer{Status: a.status, ContentType: a.header.Get("Content-Type"), Body: a.body})
	}
	const v1 = "/admin/v1"
	for pattern, path := range map[string]string{
		"/runs": "/runs?limit=1", "/runs/{run}": "/runs/run_a", "/runs/{run}/calls": "/runs/run_a/calls", "/runs/{run}/tree": "/runs/run_a/tree", "/runs/{run}/executions": "/runs/run_a/executions",
		"/executions/{id}/turns": "/executions/run_a/turns", "/executions/{id}/events": "/executions/run_a/events", "/calls/live": "/calls/live",
		"/calls/unfinished": "/calls/unfinished", "/agents": "/agents", "/agents/{name}": "/agents/researcher", "/keys": "/keys", "/budgets": "/budgets",
		"/ledger/balances": "/ledger/balances", "/ledger/entries": "/ledger/entries?payer=alice", "/ledger/export": "/ledger/export", "/status": "/status",
		"/graph": "/graph?run=run_a", "/records": "/records?run=run_a", "/remarks": "/remarks?run=run_a", "/payers": "/payers", "/payers/{payer}": "/payers/alice",
		"/health": "/health",
	} {
		ask("GET", v1+pattern, v1+path, "", http.StatusOK)
	}
	ask("GET", "/openapi.json", "/openapi.json", "", http.StatusOK)
	ask("GET", v1+"/ledger/export", v1+"/ledger/export?format=csv", "", http.StatusOK)
	ask("POST", v1+"/keys", v1+"/keys", `{"id":"zoe","role":"admin","inter_agent":true}`, http.StatusCreated)
	ask("POST", v1+"/ledger/verify", v1+"/ledger/verify", "", http.StatusOK)
	ask("POST", v1+"/runs/{run}/replay", v1+"/runs/run_a/replay", "", http.StatusOK)
	ask("POST", v1+"/runs/{run}/resume", v1+"/runs/run_a/resume?max_usd=1", "", http.StatusOK)
	ask("POST", v1+"/runs/{run}/resume", v1+"/runs/run_none/resume", "", http.StatusNotFound)
	ask("POST", v1+"/runs/{run}/fork", v1+"/runs/run_a/fork?turn=1", "", http.StatusCreated)
	ask("POST", v1+"/runs/{run}/stop", v1+"/runs/run_a/stop", "", http.StatusOK)
	ask("GET", v1+"/runs/{run}", v1+"/runs/run_a", "", http.StatusOK)
	ask("POST", v1+"/agents/{name}/probe", v1+"/agents/researcher/probe", "", http.StatusOK)
	ask("POST", v1+"/agents/{name}/drain", v1+"/agents/researcher/drain", "", http.StatusOK)
	ask("POST", v1+"/agents/{name}/enable", v1+"/agents/researcher/enable", "", http.StatusOK)
	ask("GET", v1+"/actions", v1+"/actions", "", http.StatusOK)
	ask("DELETE", v1+"/keys/{handle}", v1+"/keys/zoe", "", http.StatusOK)
	for _, c := range b.calls.Live() {
		ask("POST", v1+"/calls/{id}/void", v1+"/calls/"+strconv.FormatInt(c.ID, 10)+"/void", "", http.StatusOK)
	}
	ask("GET", v1+"/runs/{run}", v1+"/runs/run_none", "", http.StatusNotFound)
	ask("GET", v1+"/agents/{name}", v1+"/agents/none", "", http.StatusNotFound)
	ask("GET", v1+"/executions/{id}/turns", v1+"/executions/none/turns", "", http.StatusNotFound)
	ask("GET", v1+"/executions/{id}/events", v1+"/executions/none/events", "", http.StatusNotFound)
	ask("POST", v1+"/calls/{id}/void", v1+"/calls/7/void", "", http.StatusNotFound)
	ask("DELETE", v1+"/keys/{handle}", v1+"/keys/none", "", http.StatusNotFound)
	ask("GET", v1+"/ledger/entries", v1+"/ledger/entries", "", http.StatusBadRequest)
	ask("GET", v1+"/graph", v1+"/graph?window=1s", "", http.StatusBadRequest)
	ask("GET", v1+"/payers/{payer}", v1+"/payers/nobody", "", http.StatusNotFound)
	ask("POST", v1+"/agents/{name}/drain", v1+"/agents/none/drain", "", http.StatusNotFound)
	ask("GET", v1+"/runs", v1+"/runs?limit=0", "", http.StatusBadRequest)
}
