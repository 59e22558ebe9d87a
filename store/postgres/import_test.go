package postgres_test

import (
	"crypto/sha256"
	"errors"
	"iter"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/store/postgres"
	"github.com/agentbus/agentbus/store/sqlite"
	"github.com/agentbus/agentbus/store/storetest"
)

// Texts that a careless encoding breaks.
const (
	difficult = "Zoë \x00 \x1a \\ 🦊 \xff"
	account   = "Zoë \x00 \x1a \\ 🦊" // they are kept in JSON, which knows no other bytes
)

// fill writes something of every kind into s.
func fill(t *testing.T, s storetest.Store) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 12 {
		r := request("payer", "run_a", n)
		r.Recording = &agentbus.Recording{RecordedBody: agentbus.RecordedBody{Body: difficult, Cut: n == 1, Size: 99}, In: http.Header{"X-Tangle-Speaker": {account}}}
		r.Call.Caller, r.Hold = difficult, agentbus.Hold{Amount: 5_000, Budgets: []agentbus.Budget{{Account: "a/" + account, Limit: 1 << 40}}}
		got, err := s.Reserve(t.Context(), r)
		must(err)
		switch n % 4 {
		case 0:
			must(s.Void(t.Context(), agentbus.Voiding{ID: got.Call.ID, Attempt: 1, Unbilled: 3, Hold: r.Hold, Ended: time.Now()}))
		case 1:
			must(s.Append(t.Context(), got.Call.ID, 1, []byte("streamed "+difficult)))
			st := answer(got.Call)
			st.Appended, st.Hold, st.Reply.Body = true, r.Hold, []byte(strings.Repeat("long ", 1<<19))
			must(s.Settle(t.Context(), st))
		case 2:
			st := answer(got.Call)
			st.Hold, st.Sent = r.Hold, http.Header{}
			st.Answer = &agentbus.RecordedBody{Body: strings.Repeat(difficult, n*100), Cut: n == 2, Size: 1 << 20}
			must(s.Settle(t.Context(), st))
		}
	}
	c := request("payer", "run_b", 1).Call
	c.State = agentbus.CallRefused
	must(s.Record(t.Context(), agentbus.Digest{1}, c))
	e, err := s.Open(t.Context(), agentbus.Execution{ID: "run_a", Run: "run_a", Seed: difficult, Began: time.Now()}, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
	must(err)
	turn := agentbus.Turn{TurnKey: agentbus.TurnKey{Run: "run_a", ID: "run_a.t0.x"}, Execution: e.ID, Epoch: e.Lease.Epoch, Began: time.Now()}
	begun, err := s.Begin(t.Context(), []agentbus.Turn{turn}, agentbus.Event{Type: "a", Run: "run_a", Data: []byte("{}")})
	must(err)
	begun[0].State, begun[0].Reply.Text = agentbus.TurnDone, difficult
	must(s.Finish(t.Context(), begun[0], nil, agentbus.Event{Type: "held", Run: "run_a", Hold: 1}))
	must(s.CreateKey(t.Context(), agentbus.APIKey{Hash: agentbus.Digest{7}, Handle: "h", Principal: agentbus.Principal{ID: "p", InterAgent: true}, Created: time.Now()}))
	must(s.StopRun(t.Context(), "run_z", difficult, "", time.Now()))
	must(s.KeepHop(t.Context(), agentbus.HopToken{Run: "run_a", RequestID: "r", Sent: true, Token: "t", At: time.Now()}))
	must(s.Check(t.Context()))
}

// everything is what a store says of what fill wrote.
func everything(t *testing.T, s storetest.Store) (all []any) {
	t.Helper()
	add := func(v any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	for _, run := range []agentbus.RunID{"run_a", "run_b"} {
		calls, err := s.Calls(t.Context(), run)
		add(calls, err)
		for i := range calls {
			recorded, _, err := s.Recording(t.Context(), calls[i].ID)
			add(recorded, err)
		}
	}
	for n := range 12 {
		r := request("payer", "run_a", n)
		got, _, err := s.Lookup(t.Context(), r.Key, r.Call.Digest)
		if got.Reply != nil {
			add(sha256.Sum256(got.Reply.Body), err)
			got.Reply.Body = nil
		}
		add(got.Reply, err)
	}
	entries, err := s.Entries(t.Context(), "payer", 0, 100)
	add(entries, err)
	balances, err := s.Balances(t.Context(), "")
	add(balances, err)
	states, err := s.BudgetStates(t.Context(), []string{"a/" + account})
	add(states, err)
	e, _, err := s.Execution(t.Context(), "run_a")
	e.Lease.Expires = time.Time{} // goes by another clock
	add(e, err)
	keys, err := s.Keys(t.Context())
	add(keys, err)
	stopped, err := s.StoppedRuns(t.Context())
	add(stopped, err)
	hops, err := s.HopTokens(t.Context(), "run_a")
	add(hops, err)
	sums, err := s.RunSummaries(t.Context(), agentbus.RunFilter{}, 10, "")
	add(sums, err)
	add(collect(s.Turns(t.Context(), "run_a")))
	add(collect(s.Events(t.Context(), "run_a", -1)))
	return append(all, s.InstallKey())
}

func collect[T any](seq iter.Seq2[T, error]) (all []T, err error) {
	for v, serr := range seq {
		all, err = append(all, v), errors.Join(err, serr)
	}
	return all, err
}

// TestImport: a whole store of SQLite is taken over, and goes on.
func TestImport(t *testing.T) { // I2, G28
	t.Parallel()
	from, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "bus.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	fill(t, from)
	url := pgtest.Database(t)
	to := opened(t, url)
	verdict, err := from.VerifyLedger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wrong := verdict
	wrong.Charged++
	if _, err := to.Import(t.Context(), wrong, from.Export); err == nil {
		t.Error("a ledger that is another one was taken over")
	}
	counts, err := to.Import(t.Context(), verdict, from.Export)
	if err != nil || counts["calls"] != 13 || counts["entries"] != 9 {
		t.Fatalf("import: %v, %v", counts, err)
	}
	if _, err := to.Import(t.Context(), verdict, from.Export); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
		t.Errorf("into a store that is not empty: %v", err)
	}
	to = reopened(t, to, url)
	defer func() { _ = to.Close() }()
	was, is := everything(t, from), everything(t, to)
	for i := range was {
		if d := cmp.Diff(was[i], is[i], cmpopts.EquateEmpty()); d != "" {
			t.Errorf("what was taken over (-was +is):\n%s", d)
		}
	}
	got, err := to.Reserve(t.Context(), request("payer", "run_a", 50)) // ids come behind
	if err != nil || got.Outcome != agentbus.OutcomeExecute {
		t.Fatalf("a new call: %+v, %v", got, err)
	}
	if err := to.Settle(t.Context(), answer(got.Call)); err != nil {
		t.Error(err)
	}
	if v, err := to.VerifyLedger(t.Context()); err != nil || v.Fault != "" || v.Entries != 10 {
		t.Errorf("the ledger: %+v, %v", v, err)
	}
}

func reopened(t *testing.T, s *postgres.Store, url string) *postgres.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return opened(t, url)
}
