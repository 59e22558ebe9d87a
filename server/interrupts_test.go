package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/server"
)

const asking = `
agents:
  echo: {kind: builtin, builtin: echo, price: {call: 0.01}}
  eliza: {kind: builtin, builtin: eliza, price: {call: 0.01}}
  pay: {kind: builtin, builtin: pay, price: {call: 1}}
  shop: {kind: conversation, conversation: shop}
conversations:
  shop: {participants: [{agent: pay}, {agent: echo}], max_turns: 2}
  outer: {participants: [{agent: shop}, {agent: eliza}], max_turns: 2}
  gated: {participants: [{agent: echo}, {agent: eliza, approval: true}], max_turns: 2}
  all: {participants: [{agent: echo, approval: false}, {agent: eliza}], max_turns: 2, approval: true}
`

// waiting returns what waits.
func waiting(t *testing.T, s *server.Server) []agentbus.Interrupt {
	t.Helper()
	all, err := s.Store().Interrupts(t.Context(), agentbus.InterruptQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// grant is a decision for it.
var grant = agentbus.Resolution{Decision: agentbus.DecisionGranted, By: "zoë"}

// R21, R22, R7, G20, G23, I1: an agent of this process asks to be paid two levels
// down; the root shows it with its path; one resolution lets both go on, in the
// workers of the bus; the agent executes and is charged once; and its secret is
// nowhere but in the row.
func TestPaymentAtDepth(t *testing.T) {
	t.Parallel()
	s := open(t, asking)
	stop := serve(t, s)
	run, err := s.Submit(t.Context(), server.Start{Conversation: "outer", Seed: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "the wait", func() bool { return stored(t, s, run).State == agentbus.RunPaused })
	open := waiting(t, s)
	if len(open) != 1 || open[0].Root != agentbus.ExecutionID(run) || !slices.Equal(open[0].Path, []agentbus.Speaker{"shop", "pay"}) || open[0].Payer != server.LocalPayer {
		t.Fatalf("%+v", open)
	}
	state := open[0].Ask.PolicyState()
	if state == "" {
		t.Error("it has no state")
	}
	soon(t, "nobody who drives it", func() bool { return s.Driving() == 0 }) // R19
	if _, err := s.Resolve(t.Context(), open[0].ID, agentbus.Resolution{Decision: agentbus.DecisionGranted, Policy: json.RawMessage(`{"in_reply_to_state":"x"}`)}); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
		t.Errorf("another state: %v", err) // C31
	}
	if _, err := s.Resolve(t.Context(), open[0].ID, grant); err != nil {
		t.Fatal(err)
	}
	soon(t, "the end", func() bool { return stored(t, s, run).State == agentbus.RunDone })
	stop()
	all, err := s.Store().Executions(t.Context(), run)
	if err != nil || len(all) != 2 || all[0].Turns != 2 || all[1].Turns != 2 || all[1].State != agentbus.RunDone {
		t.Errorf("%+v, %v", all, err)
	}
	secretNowhere(t, s, run, state)
	if i, _, err := s.Store().Interrupt(t.Context(), open[0].ID); err != nil || i.Ask.PolicyState() == state || len(i.Ask.Policy) == 0 || i.Ask.Resume != nil {
		t.Errorf("its secret is kept once it was used, or all of it is lost: %+v, %v", i.Ask, err)
	}
	calls, err := s.Store().Calls(t.Context(), run)
	for _, c := range calls {
		if want := map[string]int{"pay": 2, "shop": 2}[c.Agent]; want > 0 && (c.Attempts != want || c.State != agentbus.CallSettled) {
			t.Errorf("%+v", c)
		}
	}
	b, berr := s.Store().Balances(t.Context(), server.LocalPayer)
	if err != nil || berr != nil || b[0].Charged != 1_020_000 || b[0].Held != 0 {
		t.Errorf("charged %+v, %v, %v", b, err, berr)
	}
	replays, err := s.Replay(t.Context(), run)
	for _, r := range replays {
		if r.Divergence != nil {
			t.Errorf("%s", r.Divergence)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// secretNowhere fails the test when what is told of a run holds a secret.
func secretNowhere(t *testing.T, s *server.Server, run agentbus.RunID, secret string) {
	t.Helper()
	all, err := s.Store().Executions(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	told := []any{all}
	for _, e := range all {
		for ev, err := range s.Store().Events(t.Context(), e.ID, -1) {
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, ev)
		}
		for turn, err := range s.Store().Turns(t.Context(), e.ID) {
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, turn)
		}
	}
	calls, err := s.Store().Calls(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := s.Store().Interrupts(t.Context(), agentbus.InterruptQuery{Run: run, All: true, Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(append(told, calls, listed))
	if err != nil || strings.Contains(string(raw), secret) {
		t.Errorf("the secret is told, %v", err)
	}
}

// R22: with approval, nobody is called before a human said so; denied, the turn
// fails and nobody was called.
func TestApprovalBeforeTheTurn(t *testing.T) {
	t.Parallel()
	s := open(t, asking)
	for _, name := range []string{"gated", "all"} {
		for _, d := range []agentbus.Decision{agentbus.DecisionGranted, agentbus.DecisionDenied} {
			r := converse(t, s, server.Start{Conversation: name, Seed: "hello"})
			if r.Halt.Kind != agentbus.HaltWaiting || len(r.Turns) != 1 || r.Halt.Participant != "eliza" {
				t.Fatalf("%+v", r)
			}
			if _, err := s.Resolve(t.Context(), r.Halt.Wait.Interrupts[0], agentbus.Resolution{Decision: d}); err != nil {
				t.Fatal(err)
			}
			again := converse(t, s, server.Start{Run: r.Run, Resume: true})
			calls, err := s.Store().Calls(t.Context(), r.Run)
			switch {
			case err != nil:
				t.Fatal(err)
			case d == agentbus.DecisionGranted && (again.Halt.Kind != agentbus.HaltMaxTurns || len(calls) != 2):
				t.Errorf("granted: %+v after %d calls", again.Halt, len(calls))
			case d == agentbus.DecisionDenied && (again.Halt.Kind != agentbus.HaltParticipantError || again.Halt.Error.Code != agentbus.CodeForbidden || len(calls) != 1):
				t.Errorf("denied: %+v after %d calls", again.Halt, len(calls))
			}
		}
	}
}

// R22: nobody decides in time: it counts as denied, and the run goes on.
func TestInterruptExpires(t *testing.T) {
	t.Parallel()
	s := open(t, asking+"interrupts: {timeout: 1s}\n")
	defer serve(t, s)()
	run, err := s.Submit(t.Context(), server.Start{Conversation: "gated", Seed: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "the halt", func() bool {
		h := stored(t, s, run).Halt
		return h != nil && h.Kind == agentbus.HaltParticipantError
	})
	if all, err := s.Store().Interrupts(t.Context(), agentbus.InterruptQuery{All: true, Limit: 9}); err != nil || len(all) != 1 || all[0].Resolution.Decision != agentbus.DecisionExpired {
		t.Errorf("%+v, %v", all, err)
	}
}

// R3, R16, R22: a run whose time is up while it waits ends, without anybody's doing,
// and whoever decides then is too late.
func TestDeadlineWhileItWaits(t *testing.T) {
	t.Parallel()
	s := open(t, asking)
	defer serve(t, s)()
	run, err := s.Submit(t.Context(), server.Start{Conversation: "gated", Seed: "hello", Timeout: 12 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "the end", func() bool { return stored(t, s, run).State == agentbus.RunDone })
	if h := stored(t, s, run).Halt; h.Kind != agentbus.HaltDeadline || h.Turns != 1 {
		t.Errorf("it ended with %v", h)
	}
	all, err := s.Store().Interrupts(t.Context(), agentbus.InterruptQuery{Run: run, All: true, Limit: 9})
	if err != nil || len(all) != 1 || all[0].Resolution.Decision != agentbus.DecisionExpired {
		t.Fatalf("%+v, %v", all, err)
	}
	if _, err := s.Resolve(t.Context(), all[0].ID, grant); agentbus.CodeOf(err) != agentbus.CodeRunConflict {
		t.Errorf("granted too late: %v", err)
	}
}

// R18, R22, R3: a run that somebody pays for needs no credential to end by what
// nobody granted: a denial, an interrupt that has expired, or its deadline.
func TestEndsWithoutItsCredential(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeout time.Duration
		denied  bool
		want    agentbus.HaltKind
	}{
		"denied":   {denied: true, want: agentbus.HaltParticipantError},
		"expired":  {want: agentbus.HaltParticipantError},
		"deadline": {timeout: 2 * time.Second, want: agentbus.HaltDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := asking
			if !tt.denied && tt.timeout == 0 {
				conf += "interrupts: {timeout: 1s}\n"
			}
			s := open(t, conf)
			run := agentbus.NewRunID()
			st := server.Start{Conversation: "gated", Seed: "hello", Run: run, Timeout: tt.timeout, Authorization: agentbus.NewCredential("Bearer user-secret")}
			converse(t, s, st)
			if tt.denied {
				if _, err := s.Resolve(t.Context(), waiting(t, s)[0].ID, agentbus.Resolution{Decision: agentbus.DecisionDenied}); err != nil {
					t.Fatal(err)
				}
			}
			defer serve(t, s)()
			soon(t, "the end", func() bool {
				h := stored(t, s, run).Halt
				return h != nil && h.Kind == tt.want
			})
			calls, err := s.Store().Calls(t.Context(), run)
			if err != nil || len(calls) > 1 {
				t.Errorf("%+v, %v", calls, err)
			}
		})
	}
}

// A38, R22: a conversation that waits answers its caller over HTTP with the run
// and the interrupt; the same turn goes on once that is resolved, and is charged
// once. Another bus between parks on one of its own meanwhile.
func TestWaitingOverHTTP(t *testing.T) {
	t.Parallel()
	s := open(t, asking)
	inner := httptest.NewServer(s.Handler())
	defer inner.Close()
	send := func() (status int, replay, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, inner.URL+"/v1/chat/completions", strings.NewReader(`{"model":"shop","messages":[{"role":"user","content":"hello"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer user-secret")
		r.Header.Set("X-Tangle-Runid", "run-1")
		r.Header.Set("X-Tangle-Turnid", "run-1.t0.shop")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // it was only read
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("X-Agentbus-Replay"), string(raw)
	}
	for range 2 {
		status, _, body := send()
		open := waiting(t, s)
		if len(open) != 1 || status != http.StatusPaymentRequired || !strings.Contains(body, string(open[0].ID)) || !strings.Contains(body, `"run_id":"run-1"`) || strings.Contains(body, open[0].Ask.PolicyState()) {
			t.Fatalf("%d %s, %+v", status, body, open)
		}
	}
	if _, err := s.Resolve(t.Context(), waiting(t, s)[0].ID, grant); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", "hit"} {
		if status, replay, body := send(); status != http.StatusOK || !strings.Contains(body, "Paid. hello") || replay != want {
			t.Errorf("%d %q %s", status, replay, body)
		}
	}
	if b, err := s.Store().Balances(t.Context(), "user-123"); err != nil || b[0].Charged != 1_010_000 {
		t.Errorf("%+v, %v", b, err)
	}
}

// A38, R22: a bus whose agent is such a conversation parks on an interrupt of its
// own, which names the other; resolving it calls the agent again.
func TestParksOnAnotherBus(t *testing.T) {
	t.Parallel()
	s := open(t, asking)
	inner := httptest.NewServer(s.Handler())
	defer inner.Close()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("user-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	outer := open(t, `
agents:
  far: {kind: openai, url: "`+inner.URL+`/v1", model: shop, api_key_file: "`+key+`"}
  echo: {kind: builtin, builtin: echo}
conversations:
  both: {participants: [{agent: far}, {agent: echo}], max_turns: 2}
`)
	start := server.Start{Conversation: "both", Seed: "hello", Authorization: agentbus.NewCredential("Bearer user-secret")}
	r := converse(t, outer, start)
	if r.Halt.Kind != agentbus.HaltWaiting {
		t.Fatalf("%+v", r.Halt)
	}
	for round := range 2 {
		here, there := waiting(t, outer), waiting(t, s)
		if round == 0 && (len(here) != 1 || len(there) != 1 || here[0].Ask.Remote != there[0].ID || here[0].ID == there[0].ID) {
			t.Fatalf("%+v, %+v", here, there)
		}
		if _, err := outer.Resolve(t.Context(), here[0].ID, grant); err != nil {
			t.Fatal(err)
		}
		if round == 1 { // now there, too
			if _, err := s.Resolve(t.Context(), there[0].ID, grant); err != nil {
				t.Fatal(err)
			}
		}
		start.Run, start.Resume = r.Run, true
		r = converse(t, outer, start)
		if want := []agentbus.HaltKind{agentbus.HaltWaiting, agentbus.HaltMaxTurns}[round]; r.Halt.Kind != want {
			t.Fatalf("round %d: %+v", round, r.Halt)
		}
	}
}

// R22, R23: a run that waits is forked at or before the turn that waits, and not
// behind it; the fork asks for itself, and what is decided for one does not hold for
// the other. Behind what was granted, nothing is asked.
func TestForkOfARunThatWaits(t *testing.T) {
	t.Parallel()
	s := open(t, asking)
	source := converse(t, s, server.Start{Conversation: "gated", Seed: "hello"})
	fork := func(at int) *conversation.Result {
		return converse(t, s, server.Start{From: &server.Fork{Run: source.Run, Turn: at}})
	}
	asked := map[agentbus.InterruptID]bool{source.Halt.Wait.Interrupts[0]: true}
	for at, calls := range []int{1, 0} { // turns that are asked again
		r := fork(at)
		made, err := s.Store().Calls(t.Context(), r.Run)
		if err != nil || r.Halt.Kind != agentbus.HaltWaiting || len(r.Turns) != 1 || len(made) != calls || r.Turns[0].Reply.Replayed != (at == 1) {
			t.Fatalf("at %d: %+v after %d calls, %v", at, r, len(made), err)
		}
		asked[r.Halt.Wait.Interrupts[0]] = true
		if _, err := s.Resolve(t.Context(), r.Halt.Wait.Interrupts[0], grant); err != nil {
			t.Fatal(err)
		}
		if r = converse(t, s, server.Start{Run: r.Run, Resume: true}); r.Halt.Kind != agentbus.HaltMaxTurns {
			t.Errorf("at %d: %+v", at, r.Halt)
		}
	}
	if open := waiting(t, s); len(asked) != 3 || len(open) != 1 || open[0].Run != source.Run {
		t.Errorf("%d interrupts, of which wait %+v", len(asked), open)
	}
	if err := forkFault(t, s, source.Run, 2); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest || agentbus.AsError(err).Explain.Limit != 1 {
		t.Errorf("behind it: %v", err)
	}
	if _, err := s.Resolve(t.Context(), source.Halt.Wait.Interrupts[0], grant); err != nil {
		t.Fatal(err)
	}
	converse(t, s, server.Start{Run: source.Run, Resume: true})
	r := fork(2)
	if calls, err := s.Store().Calls(t.Context(), r.Run); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || len(calls) != 0 || len(waiting(t, s)) != 0 {
		t.Errorf("behind what was granted: %+v after %d calls, %v", r.Halt, len(calls), err)
	}
}

// R21, R23: of a fan-out with a branch that waits, those before it can be copied.
func TestForkOfAFanOutThatWaits(t *testing.T) {
	t.Parallel()
	s := open(t, asking+"  panel: {participants: [{agent: echo}, {agent: pay}, {agent: eliza}], plan: fan-out}\n")
	source := converse(t, s, server.Start{Conversation: "panel", Seed: "hello"})
	r := converse(t, s, server.Start{From: &server.Fork{Run: source.Run, Turn: 1}})
	if r.Halt.Kind != agentbus.HaltWaiting || r.Halt.Wait.Interrupts[0] == source.Halt.Wait.Interrupts[0] {
		t.Errorf("%+v", r.Halt)
	}
	if calls, err := s.Store().Calls(t.Context(), r.Run); err != nil || len(calls) != 2 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
	if err := forkFault(t, s, source.Run, 2); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
		t.Errorf("a branch that waits would be copied: %v", err)
	}
}

// forkFault forks a run at a turn, and returns why that cannot be done.
func forkFault(t *testing.T, s *server.Server, run agentbus.RunID, at int) (err error) {
	t.Helper()
	for _, err = range s.Converse(t.Context(), server.Start{From: &server.Fork{Run: run, Turn: at}}, nil) {
		if err != nil {
			return err
		}
	}
	return nil
}

// R22: what does not answer what was asked is refused, and decides nothing.
func TestResolutionMustFit(t *testing.T) {
	t.Parallel()
	s := open(t, asking)
	id := converse(t, s, server.Start{Conversation: "shop", Seed: "hello"}).Halt.Wait.Interrupts[0]
	for name, r := range map[string]agentbus.Resolution{
		"no decision": {}, "expired": {Decision: agentbus.DecisionExpired},
		"long":  {Decision: agentbus.DecisionGranted, Text: strings.Repeat("x", 1<<17)},
		"array": {Decision: agentbus.DecisionGranted, Policy: json.RawMessage(`[]`)},
		"null":  {Decision: agentbus.DecisionGranted, Policy: json.RawMessage(`null`)},
	} {
		if _, err := s.Resolve(t.Context(), id, r); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	approval := converse(t, s, server.Start{Conversation: "gated", Seed: "hello"}).Halt.Wait.Interrupts[0]
	if _, err := s.Resolve(t.Context(), approval, agentbus.Resolution{Decision: agentbus.DecisionGranted, Policy: json.RawMessage(`{"evidence":1}`)}); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
		t.Errorf("evidence that nobody asked for: %v", err)
	}
	if i := waiting(t, s); len(i) != 2 || !i[0].Open() || !i[1].Open() {
		t.Errorf("%+v", i)
	}
	if _, err := s.Resolve(t.Context(), "int_x", grant); agentbus.CodeOf(err) != agentbus.CodeNotFound {
		t.Errorf("unknown: %v", err)
	}
}
