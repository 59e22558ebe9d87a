package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// hop stores a call of run_g as the agent from made it, inside of the turn above.
func (b *bus) hop(from, to string, n, above int, notes ...string) agentbus.CallRecord {
	b.t.Helper()
	key := agentbus.TurnKey{Payer: "alice", Agent: to, Run: "run_g", ID: agentbus.RunID("run_g").Turn(n, agentbus.Speaker(to))}
	if above >= 0 {
		key.Parent = agentbus.RunID("run_g").Turn(above, agentbus.Speaker(from))
	}
	got, err := b.store.Reserve(b.t.Context(), agentbus.Reservation{Key: key.Hash(), Call: agentbus.CallRecord{
		TurnKey: key, RequestID: "req", Caller: "app", Depth: n, Notes: notes, Owner: "host/1/2", Began: time.Now(),
	}})
	b.must(err)
	return got.Call
}

// refuse stores a refusal of run_g.
func (b *bus) refuse(to string, n int, parent agentbus.TurnID, code agentbus.Code, notes ...string) {
	b.t.Helper()
	id := agentbus.RunID("run_g").Turn(n, agentbus.Speaker(to))
	b.must(b.store.Record(b.t.Context(), agentbus.Digest{byte(n)}, agentbus.CallRecord{
		TurnKey: agentbus.TurnKey{Payer: "alice", Agent: to, Run: "run_g", Parent: parent, ID: id}, State: agentbus.CallRefused, RequestID: "req", Caller: "app",
		Status: 429, Code: code, Message: "no", Notes: notes, Began: time.Now(), Ended: time.Now(),
	}))
}

// U12: agents are nodes, calls are edges with count, errors, p95 and cost, and
// circles are found and counted.
func TestGraph(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	took := func(c agentbus.CallRecord, ms int, cost agentbus.Micros) {
		b.must(b.store.Settle(t.Context(), agentbus.Settlement{
			ID: c.ID, Attempt: 1, Reply: agentbus.StoredReply{Status: 200, Header: http.Header{}}, Cost: cost, Ended: c.Began.Add(time.Duration(ms) * time.Millisecond),
		}))
	}
	took(b.hop("", "critic", 0, -1), 100, 5)
	took(b.hop("critic", "researcher", 1, 0), 40, 7)
	took(b.hop("researcher", "critic", 2, 1), 20, 1)
	failed := b.hop("critic", "researcher", 3, 0)
	b.must(b.store.Void(t.Context(), agentbus.Voiding{ID: failed.ID, Attempt: 1, Status: 502, Code: agentbus.CodeAgentUnavailable, Ended: failed.Began.Add(90 * time.Millisecond)}))
	left := b.hop("critic", "researcher", 5, 0) // its caller did: the agent did nothing wrong (G14)
	b.must(b.store.Void(t.Context(), agentbus.Voiding{ID: left.ID, Attempt: 1, Status: agentbus.StatusCallerLeft, Code: agentbus.CodeAgentUnavailable, Ended: left.Began.Add(90 * time.Millisecond)}))
	for range 2 {
		b.refuse("critic", 4, "run_g.t1.researcher", agentbus.CodeCycleRefused)
	}
	want := console.Graph{
		Calls: 6,
		Nodes: []console.Node{{Name: "app", Kind: "caller"}, {Name: "critic", Kind: "builtin", Calls: 2}, {Name: "researcher", Kind: "openai", Calls: 3}},
		Edges: []console.Edge{
			{From: "app", To: "critic", Calls: 1, P95: 100, Cost: 5},
			{From: "critic", To: "researcher", Calls: 3, Failed: 1, Errors: 0.3333, P95: 90, Cost: 7, Verbatim: true, Cycle: true},
			{From: "researcher", To: "critic", Calls: 1, Refused: 2, Errors: 0.6667, P95: 20, Cost: 1, Cycle: true},
		},
		Cycles: []console.Cycle{{Agents: []string{"critic", "researcher"}, Calls: 6, Refused: 2}},
	}
	for _, path := range []string{"/admin/v1/graph?run=run_g", "/admin/v1/graph?window=1h"} {
		got := into[console.Graph](t, b.get(path))
		if got.Since.IsZero() != (got.Run != "") {
			t.Errorf("%s: since %v, run %s", path, got.Since, got.Run)
		}
		got.Run, got.Since = "", time.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	// U12: agents are nodes; names that callers made up are one, however many.
	for i := range 3 {
		key := agentbus.TurnKey{Payer: "alice", Agent: fmt.Sprintf("nobody%d", i), Run: "run_u", ID: "run_u.t0.x"}
		b.must(b.store.Record(t.Context(), key.Hash(), agentbus.CallRecord{TurnKey: key, Caller: "app", State: agentbus.CallRefused, Code: agentbus.CodeAgentNotFound, Began: time.Now(), Ended: time.Now()}))
	}
	got := into[console.Graph](t, b.get("/admin/v1/graph?run=run_u"))
	if len(got.Nodes) != 2 || len(got.Edges) != 1 || got.Edges[0].To != console.UnknownAgents || got.Edges[0].Refused != 3 {
		t.Errorf("of names that nobody has: %+v", got)
	}
	if got := into[console.Graph](t, b.get("/admin/v1/graph?run=run_none")); len(got.Nodes)+len(got.Edges)+len(got.Cycles) != 0 {
		t.Errorf("of an unknown run: %+v", got)
	}
}

// U14: how an agent did: errors by class, percentiles, last success, cost a turn.
func TestRecords(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	got := into[struct {
		Data []struct {
			Agent string
			console.Record
		}
	}](t, b.get("/admin/v1/records?run=run_a"))
	if len(got.Data) != 1 {
		t.Fatalf("records: %+v", got)
	}
	want := console.Record{
		Calls: 4, Errors: []console.CodeCount{{Code: agentbus.CodeDepthExceeded, Count: 1}}, P50: 1000, P95: 1000, P99: 1000,
		LastSuccess: began.Add(3 * time.Second), Turn: 1_000_000,
	}
	if diff := cmp.Diff(want, got.Data[0].Record); diff != "" || got.Data[0].Agent != "critic" {
		t.Errorf("record of %s (-want +got):\n%s", got.Data[0].Agent, diff)
	}
}

// U13: a payer's cap, what is reserved, settled and left of it, where the present
// rate leads, the parts by agent, run and day, and what is reserved for too long.
func TestPayers(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	recent := b.reserve("alice", "run_n", 7, agentbus.Hold{})
	b.must(b.store.Settle(t.Context(), agentbus.Settlement{
		ID: recent.ID, Attempt: 1, Reply: agentbus.StoredReply{Status: 200, Header: http.Header{}}, Cost: 500_000, Ended: time.Now(),
	}))
	list := into[struct{ Data []console.Payer }](t, b.get("/admin/v1/payers"))
	if len(list.Data) != 2 || list.Data[0].Payer != "alice" || len(list.Data[0].Caps) != 1 {
		t.Fatalf("payers: %+v", list.Data)
	}
	alice := list.Data[0]
	limit := alice.Caps[0]
	if limit.Limit != 5_000_000 || limit.Reserved != 2_000_000 || limit.Settled != 3_000_000 || limit.Remaining != 0 {
		t.Errorf("cap: %+v", limit)
	}
	if alice.Rate != 500_000 || limit.Forecast < 3_990_000 || limit.Forecast > 4_000_000 || !limit.Reached.IsZero() {
		t.Errorf("forecast of two hours at $0.50 an hour: rate %d, %+v", alice.Rate, limit)
	}
	d := into[console.PayerDetail](t, b.get("/admin/v1/payers/alice"))
	if diff := cmp.Diff([]agentbus.Spending{{Of: "critic", Calls: 4, Charged: 3_500_000}}, d.ByAgent); diff != "" {
		t.Errorf("by agent (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]agentbus.Spending{{Of: "run_a", Calls: 3, Charged: 3_000_000}, {Of: "run_n", Calls: 1, Charged: 500_000}}, d.ByRun); diff != "" {
		t.Errorf("by run (-want +got):\n%s", diff)
	}
	if len(d.ByDay) == 0 || len(d.Stale) != 1 || d.Stale[0].Run != "run_c" || d.Stale[0].Held != 2_000_000 || !d.Stale[0].Lives {
		t.Errorf("by day %+v, stale %+v", d.ByDay, d.Stale)
	}
}

// U15: depth regressions, ignored forwarded credentials and cycles are told.
func TestRemarks(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.hop("", "critic", 0, -1, "forwarded_authorization_ignored")
	b.hop("", "critic", 1, -1, "reentry")
	b.refuse("critic", 2, "", agentbus.CodeInvalidLineage, "depth_regression")
	b.refuse("critic", 3, "", agentbus.CodeCycleRefused)
	b.refuse("critic", 4, "", agentbus.CodeDepthExceeded)
	got := into[struct{ Data []console.Remark }](t, b.get("/admin/v1/remarks?run=run_g"))
	kinds := make(map[console.RemarkKind]int)
	for _, r := range got.Data {
		kinds[r.Kind] += r.Count
	}
	if diff := cmp.Diff(map[console.RemarkKind]int{console.RemarkDepth: 1, console.RemarkForwarded: 1, console.RemarkCycle: 1}, kinds); diff != "" {
		t.Errorf("remarks (-want +got):\n%s", diff)
	}
}

// U5: what operators do is kept with who did it, and what they were refused too.
func TestActionsAreKept(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	b.request("POST", "/admin/v1/runs/run_a/stop", adminKey, "")
	b.request("POST", "/admin/v1/agents/none/drain", tokenKey, "")
	b.request("POST", "/admin/v1/runs/run_a/stop", userKey, "") // not an operator's: it stands in the log
	b.get("/admin/v1/runs")                                     // changes nothing
	got := into[struct{ Data []agentbus.Action }](t, b.get("/admin/v1/actions"))
	var brief [][5]string
	for _, a := range got.Data {
		brief = append(brief, [5]string{a.By, a.Kind, a.Object, string(a.Run), string(a.Code)})
		if a.At.IsZero() || a.RequestID == "" {
			t.Errorf("an action without time or request: %+v", a)
		}
	}
	want := [][5]string{
		{"admin-token", "agent.drain", "none", "", "agent_not_found"},
		{"ops", "run.stop", "run_a", "run_a", ""},
	}
	if diff := cmp.Diff(want, brief); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if of := into[struct{ Data []agentbus.Action }](t, b.get("/admin/v1/actions?run=run_a")); len(of.Data) != 1 {
		t.Errorf("of run_a: %+v", of.Data)
	}
	page := into[struct {
		Data []agentbus.Action
		Next string
	}](t, b.get("/admin/v1/actions?limit=1"))
	rest := into[struct{ Data []agentbus.Action }](t, b.get("/admin/v1/actions?limit=1&cursor="+page.Next))
	if len(page.Data) != 1 || len(rest.Data) != 1 || rest.Data[0].Kind != "run.stop" {
		t.Errorf("pages: %+v, then %+v", page.Data, rest.Data)
	}
}

// U16: health says how store, configuration and calls do.
func TestHealth(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	v := into[console.Vitals](t, b.get("/admin/v1/health"))
	if v.Live != 1 || v.Store.P99 != 2 || v.Store.Queue != 3 || v.Version != "1.2.3" || len(v.Replicas) != 1 || v.Config.Valid || v.Config.Faults[0].Line != 12 {
		t.Errorf("health: %+v", v)
	}
}

// U1, U11: the page of a run says which call was retried and what nobody paid for
// it, and tells in words what its lanes tell in colours.
func TestAPageTellsWhatWasRetried(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	failed := b.reserve("alice", "run_r", 1, agentbus.Hold{})
	b.must(b.store.Void(t.Context(), agentbus.Voiding{ID: failed.ID, Attempt: 1, Status: 502, Code: agentbus.CodeAgentUnavailable, Message: "gone", Unbilled: 3, Ended: began.Add(time.Second)}))
	b.settle(b.reserve("alice", "run_r", 1, agentbus.Hold{}), 5, agentbus.Hold{})
	b.reserve("alice", "run_r", 2, agentbus.Hold{})
	page := b.form("/console/runs/run_r", b.signIn(adminKey), nil).body
	for _, want := range []string{
		"critic t1.critic was retried and charged once: $0.000003 of 1 failed attempt is paid by nobody", "×2, charged once",
		`<p class="legend"><span class="badge is-running">`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
}
