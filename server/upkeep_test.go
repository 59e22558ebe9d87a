package server_test

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// TestRetention: G25, an answer is kept as long as the configuration says; then
// a duplicate gets 410 and pays nothing. So is what was asked, where that is
// recorded (U11).
func TestRetention(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a")
	s := open(t, fmt.Sprintf("agents: {a: {kind: openai, url: %q, price: {call: 0.01}}}\nretention: {replies: 1s}\nrecording: {requests: true}\n", a.URL+"/v1"))
	addr, stop := serveAt(t, s)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	status, body := repeat(t, client, addr)
	if status != http.StatusOK || !strings.Contains(body, "a 1") {
		t.Errorf("at first: %d %s", status, body)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for status == http.StatusOK { // until the answer is swept
		<-tick.C
		if status, body = repeat(t, client, addr); status == http.StatusOK && !strings.Contains(body, "a 1") {
			t.Errorf("a duplicate: %s", body)
		}
	}
	if status != http.StatusGone || !strings.Contains(body, "reply_expired") {
		t.Errorf("at last: %d %s", status, body)
	}
	for recorded := true; recorded; <-tick.C {
		var err error
		if _, recorded, err = s.Store().Recording(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	balances, err := s.Store().Balances(t.Context(), "user-123")
	if err != nil || len(balances) != 1 || balances[0].Charged != 10_000 || balances[0].Calls != 1 || len(a.headers()) != 1 {
		t.Errorf("balances: %+v, %v; the agent was called %d times", balances, err, len(a.headers()))
	}
}

// TestShorterRetention: G25 and G30, answers that are kept for less long from a reload on
// are swept accordingly.
func TestShorterRetention(t *testing.T) {
	t.Parallel()
	b := serveFile(t, onlyAlice+oneEcho)
	if status, body := b.post("alice-secret", "echo", "r"); status != http.StatusOK {
		t.Fatal(status, body)
	}
	b.write(onlyAlice + oneEcho + "retention: {replies: 1s}\n")
	if err := b.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	status, body := http.StatusOK, ""
	for status == http.StatusOK { // until the answer is swept
		<-tick.C
		status, body = b.post("alice-secret", "echo", "r")
	}
	if status != http.StatusGone {
		t.Errorf("at last: %d %s", status, body)
	}
}

// TestVoidsLate: G20, G27, a bus that serves voids what it could not void when the store
// could not be written, as soon as it can.
func TestVoidsLate(t *testing.T) {
	t.Parallel()
	a, path := newAgent(t, "a"), filepath.Join(t.TempDir(), "bus.db")
	s := openAt(t, path, fmt.Sprintf("agents: {a: {kind: openai, url: %q}}\n", a.URL+"/v1"))
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(30000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	do := func(statement string) {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	do("CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
	addr, stop := serveAt(t, s)
	defer stop()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	if status, body := repeat(t, client, addr); status != http.StatusServiceUnavailable || !strings.Contains(body, "store_unavailable") {
		t.Fatalf("while nothing can be written: %d %s", status, body)
	}
	do("DROP TRIGGER full")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for voided := 0; voided == 0; <-tick.C {
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM calls WHERE state = 'voided'").Scan(&voided); err != nil {
			t.Fatal(err)
		}
	}
}

// repeat sends the same call.
func repeat(t *testing.T, client *http.Client, address string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/chat/completions", strings.NewReader(`{"model":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer user-secret")
	r.Header.Set("Idempotency-Key", "one")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestDeadHolds: G24, G27, what a call of a dead process holds does not block a
// budget: it is released when a bus starts.
func TestDeadHolds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bus.db")
	s := openAt(t, path, "")
	for n, owner := range []string{"another-boot/1/1", s.Owner()} {
		key := agentbus.TurnKey{Payer: "user-123", Agent: "a", Run: "run_a", ID: agentbus.RunID("run_a").Turn(n, "a")}
		_, err := s.Store().Reserve(t.Context(), agentbus.Reservation{
			Key: key.Hash(), Call: agentbus.CallRecord{TurnKey: key, Owner: owner, Began: time.Now()},
			Hold: agentbus.Hold{Amount: 300, Budgets: []agentbus.Budget{{Account: "run_a", Limit: 1000, Strict: true}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	again := openAt(t, path, "")
	got, err := again.Store().BudgetStates(t.Context(), []string{"run_a"})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if d := cmp.Diff(agentbus.BudgetState{Account: "run_a", Held: 300, Calls: 1, Opened: got[0].Opened}, got[0]); d != "" {
		t.Errorf("the budget (-want +got):\n%s", d)
	}
}

// A store in memory serves like any other, and ends with its bus.
func TestMemoryStore(t *testing.T) {
	t.Parallel()
	const yaml = "agents: {echo: {kind: builtin, builtin: echo}}\n"
	for range 2 {
		s := buildOn(t, "memory:", yaml, userKey("secret-1"))
		if status, body := askAs(t, s, "secret-1", "echo", "run_a"); status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
		if all, err := s.Store().RunSummaries(t.Context(), agentbus.RunFilter{}, 9, ""); len(all) != 1 || err != nil {
			t.Errorf("%+v, %v", all, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// E9: the events of a run that is over are kept as long as the configuration says;
// then whoever asks is told so, and its turns are there.
func TestRetentionOfEvents(t *testing.T) {
	t.Parallel()
	s := open(t, "agents: {a: {kind: builtin, builtin: echo}, b: {kind: builtin, builtin: echo}}\nconversations: {talk: {participants: [{agent: a}, {agent: b}], max_turns: 2}}\nretention: {events: 1s}\n")
	run := converse(t, s, server.Start{Conversation: "talk", Seed: "hello", Authorization: agentbus.NewCredential("Bearer user-secret")}).Run
	defer serve(t, s)()
	soon(t, "the end of the events", func() bool {
		for _, err := range s.Store().Events(t.Context(), agentbus.ExecutionID(run), -1) {
			return agentbus.CodeOf(err) == agentbus.CodeReplyExpired
		}
		return false
	})
	if e := stored(t, s, run); e.State != agentbus.RunDone || e.Turns != 2 {
		t.Errorf("%+v", e)
	}
	for _, path := range []string{"", "/events", "/events/poll"} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/v1/runs/"+string(run)+path, nil)
			r.Header.Set("Authorization", "Bearer user-secret")
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != http.StatusGone || !strings.Contains(w.Body.String(), `"error":"reply_expired"`) {
				t.Errorf("%s as %s: %d %s", path, accept, w.Code, w.Body)
			}
		}
	}
}
