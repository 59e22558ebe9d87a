package admin_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/openapi"
)

// park parks a run on a payment.
func (b *bus) park(run agentbus.RunID, payer agentbus.Payer) agentbus.InterruptID {
	b.t.Helper()
	ctx := b.t.Context()
	e, err := b.store.Open(ctx, agentbus.Execution{ID: agentbus.ExecutionID(run), Run: run, Conversation: "review", Payer: payer, Began: began}, agentbus.Claim{Owner: "host/1/2", TTL: time.Hour})
	b.must(err)
	return b.asks(e)
}

// asks parks an execution on a payment.
func (b *bus) asks(e agentbus.Execution) agentbus.InterruptID {
	b.t.Helper()
	ctx, run, payer := b.t.Context(), e.Run, e.Payer
	turns, err := b.store.Begin(ctx, []agentbus.Turn{{TurnKey: agentbus.TurnKey{Payer: payer, Agent: "shop", Run: run, Path: e.Path, Parent: e.Parent, ID: run.Turn(0, "shop")}, Execution: e.ID, Speaker: "shop", Epoch: e.Lease.Epoch, State: agentbus.TurnPending, Attempts: 1, Began: began}})
	b.must(err)
	turn := turns[0]
	i := agentbus.Interrupt{
		ID: agentbus.InterruptOf(e.ID, turn.ID, 1), Run: run, Execution: e.ID, Root: e.ID, Turn: turn.ID, Payer: payer, Path: []agentbus.Speaker{"panel", "shop"},
		Ask: agentbus.Ask{
			Kind: agentbus.AskPolicy, Title: "pay", Prompt: "it is worth it", Choices: []string{"yes"}, Timeout: time.Hour, Remote: "int_there",
			Policy: json.RawMessage(`{"kind":"payment_required","message":"$1","state":"s3cret"}`), Resume: json.RawMessage(`"t3cret"`),
		},
		Raised: began, Expires: time.Now().Add(time.Hour),
	}
	turn.State, turn.Interrupt = agentbus.TurnWaiting, &i
	turn.Error = &agentbus.Error{Code: agentbus.CodePaymentRequired, Message: "pay", Ask: &agentbus.Ask{Kind: agentbus.AskPolicy, Title: "pay", Interrupts: []agentbus.InterruptID{i.ID}}}
	b.must(b.store.Halt(ctx, e.Lease, agentbus.Halt{Kind: agentbus.HaltWaiting, Wait: &agentbus.Wait{Interrupts: []agentbus.InterruptID{i.ID}, Asked: []agentbus.Turn{turn}}}))
	return i.ID
}

// interrupts are those of a list, and the cursor of its next page.
func interrupts(t *testing.T, a answer) (ids []agentbus.InterruptID, next string) {
	t.Helper()
	l := into[struct {
		Data []agentbus.Interrupt
		Next string
	}](t, a)
	for _, i := range l.Data {
		ids = append(ids, i.ID)
	}
	return ids, l.Next
}

// R22: what waits is listed by payer and run, a page at a time, and decided once;
// who did it is kept; no secret is shown; and all of it is as documented.
func TestInterrupts(t *testing.T) {
	t.Parallel()
	d, b := openapi.Read(t, "openapi.json"), open(t, nil)
	a, z, c := b.park("run_a", "alice"), b.park("run_z", "zoe"), b.park("run_c", "alice")
	const v1 = "/admin/v1/interrupts"
	for path, want := range map[string][]agentbus.InterruptID{
		"": {a, z, c}, "?payer=alice": {a, c}, "?run=run_z": {z}, "?limit=1": {a}, "?payer=none": nil, "?state=all": {a, z, c},
	} {
		got := b.get(v1 + path)
		if ids, _ := interrupts(t, got); !cmp.Equal(want, ids) || strings.Contains(got.body, "3cret") {
			t.Errorf("%q: %s", path, got.body)
		}
		d.Check(t, "GET", v1, openapi.Answer{Status: got.status, ContentType: got.header.Get("Content-Type"), Body: got.body})
	}
	_, next := interrupts(t, b.get(v1+"?limit=2"))
	if ids, _ := interrupts(t, b.get(v1+"?cursor="+next)); !cmp.Equal([]agentbus.InterruptID{c}, ids) {
		t.Errorf("the next page: %v", ids)
	}
	one := v1 + "/" + string(a)
	for _, step := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", one, "", http.StatusOK},
		{"GET", v1 + "/int_x", "", http.StatusNotFound},
		{"GET", v1 + "?state=x", "", http.StatusBadRequest},
		{"POST", one + "/resolve", `{"decided":1}`, http.StatusBadRequest},
		{"POST", v1 + "/int_x/resolve", `{"decision":"granted"}`, http.StatusNotFound},
		{"POST", one + "/resolve", `{"decision":"granted","text":"ok","policy_resolution":{"evidence":"e3cret"}}`, http.StatusOK},
		{"POST", one + "/resolve", `{"decision":"denied"}`, http.StatusConflict},
		{"GET", one, "", http.StatusOK},
		{"GET", "/admin/v1/executions/run_z/turns", "", http.StatusOK},
		{"GET", "/admin/v1/runs/run_z/executions", "", http.StatusOK},
		{"GET", "/admin/v1/runs/run_z", "", http.StatusOK},
	} {
		got := b.request(step.method, step.path, adminKey, step.body)
		if got.status != step.status || strings.Contains(got.body, "3cret") {
			t.Errorf("%s %s: %d %s", step.method, step.path, got.status, got.body)
		}
		pattern := strings.NewReplacer(string(a), "{id}", "int_x", "{id}", "?state=x", "", "executions/run_z", "executions/{id}", "runs/run_z", "runs/{run}").Replace(step.path)
		d.Check(t, step.method, pattern, openapi.Answer{Status: got.status, ContentType: got.header.Get("Content-Type"), Body: got.body})
		if step.status == http.StatusConflict && (got.code() != agentbus.CodeRunConflict || !strings.Contains(got.body, "granted by ops")) {
			t.Errorf("decided twice: %s", got.body)
		}
	}
	i, _, err := b.store.Interrupt(t.Context(), a)
	if err != nil || i.Resolution.By != "ops" || i.Resolution.Text != "ok" || string(i.Resolution.Policy) != `{"evidence":"e3cret"}` {
		t.Errorf("%+v, %v", i.Resolution, err)
	}
	if !strings.Contains(b.log.String(), string(a)+" granted") || strings.Contains(b.log.String(), "3cret") {
		t.Errorf("the log has %s", b.log)
	}
}

// run is how a run stands.
func (b *bus) run(id string) string {
	b.t.Helper()
	return into[struct{ Standing string }](b.t, b.get("/admin/v1/runs/"+id)).Standing
}

// U10, U11: what a turn asked stands below that turn, of several of one id too, and a call
// that was answered with a question waits while nobody has decided, with its run.
func TestWhatATurnAskedStandsBelowIt(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	c := b.hop("", "mall", 0, -1)
	b.must(b.store.Void(t.Context(), agentbus.Voiding{ID: c.ID, Attempt: 1, Status: 402, Code: agentbus.CodePaymentRequired, Ended: c.Began}))
	var ids []agentbus.InterruptID
	for _, path := range []string{"0011223344556677", "8899aabbccddeeff"} {
		e, err := b.store.Open(t.Context(), agentbus.Execution{
			ID: agentbus.ExecutionID("run_" + path), Run: "run_g", Conversation: "shop", Payer: "alice", Path: path, Parent: "run_g.t1.shop", Depth: 1, Began: began,
		}, agentbus.Claim{Owner: "host/1/2", TTL: time.Hour})
		b.must(err)
		ids = append(ids, b.asks(e))
	}
	read := func() (keys []string, mall string) {
		for _, row := range into[struct {
			Data []struct{ Key, Standing string }
		}](t, b.get("/admin/v1/runs/run_g/tree")).Data {
			if keys = append(keys, row.Key); strings.HasPrefix(row.Key, "c") {
				mall = row.Standing
			}
		}
		return keys, mall
	}
	keys, mall := read()
	for i, path := range []string{"0011223344556677", "8899aabbccddeeff"} {
		if at := slices.Index(keys, string(ids[i])); at < 1 || keys[at-1] != "run_"+path+"-0" {
			t.Errorf("%s stands elsewhere in %v", ids[i], keys)
		}
	}
	if mall != "waiting" || b.run("run_g") != "waiting" {
		t.Errorf("while it is asked about, the call is %s, the run %s", mall, b.run("run_g"))
	}
	for _, id := range ids {
		if a := b.request("POST", "/admin/v1/interrupts/"+string(id)+"/resolve", adminKey, `{"decision":"denied"}`); a.status != http.StatusOK {
			t.Fatalf("deny: %d %s", a.status, a.body)
		}
	}
	if _, mall = read(); mall != "failed" || b.run("run_g") != "failed" {
		t.Errorf("denied, the call is %s, the run %s", mall, b.run("run_g"))
	}
	page := b.get("/console/runs/run_g").body
	if short := string(ids[0][len(ids[0])-8:]); !strings.Contains(page, `title="`+string(ids[0])+`">…`+short) { // U2
		t.Errorf("the id of what was asked is not short in %s", page)
	}
}
