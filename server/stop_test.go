package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// buildAt builds a bus over the store at path, with keys of its own, for a test that
// closes it.
func buildAt(t *testing.T, path, yaml string, keys ...identity.StaticKey) *server.Server {
	t.Helper()
	return buildOn(t, "sqlite:"+sqlitetest.Prepare(t, path), yaml, keys...)
}

// buildOn is buildAt for any store.
func buildOn(t *testing.T, url, yaml string, keys ...identity.StaticKey) *server.Server {
	t.Helper()
	c, _, err := config.Parse("test", []byte(fmt.Sprintf("store: {url: %q}\n", url)+yaml), config.Source{Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Config{Config: c, Version: "test", Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// askAs calls an agent of s with a key and returns the status and the body.
func askAs(t *testing.T, s *server.Server, key, agent string, run agentbus.RunID) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"`+agent+`","messages":[{"role":"user","content":"hello"}]}`))
	r.Header.Set("Authorization", "Bearer "+key)
	if run != "" {
		r.Header.Set("x-tangle-runid", string(run))
		r.Header.Set("x-tangle-turnid", string(run.Turn(0, agentbus.Speaker(agent))))
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// newSilent starts an agent that never answers, and tells when it is called.
func newSilent(t *testing.T) (url string, called chan struct{}) {
	t.Helper()
	called = make(chan struct{}, 8)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not see the caller leave
		called <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(srv.Close)
	return srv.URL, called
}

// TestStop: G14, a stopped run stays stopped: its drivers here halt at once, its
// calls are voided and refused, and a bus that opens the store later knows it.
func TestStop(t *testing.T) {
	t.Parallel()
	slow, called := newSilent(t)
	yaml := fmt.Sprintf(twoAgents, slow+"/v1", slow+"/v1")
	path := filepath.Join(t.TempDir(), "bus.db")
	s := buildAt(t, path, yaml)
	run := agentbus.NewRunID()
	halted := make(chan agentbus.Halt, 1)
	go func() {
		for e, err := range s.Converse(t.Context(), server.Start{Conversation: "outer", Seed: "go", Run: run}, nil) {
			if err != nil {
				t.Error(err)
			}
			if e.Result != nil {
				halted <- e.Result.Halt
			}
		}
		close(halted)
	}()
	<-called
	if live := s.Live(); len(live) != 1 || live[0].Run != run || live[0].Agent != "a" {
		t.Errorf("live: %+v", live)
	}
	if n, err := s.Stop(t.Context(), run, "ops"); n != 1 || err != nil {
		t.Errorf("stopped %d calls, %v", n, err)
	}
	if h := <-halted; h.Kind != agentbus.HaltAbort || !h.Final() || h.Error == nil || h.Error.Code != agentbus.CodeRunStopped {
		t.Errorf("the driver halted with %+v", h)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = buildAt(t, path, yaml)
	defer closed(t, s)
	for e, err := range s.Converse(t.Context(), server.Start{Run: run, Resume: true}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Result != nil && (e.Result.Halt.Error == nil || e.Result.Halt.Error.Code != agentbus.CodeRunStopped) {
			t.Errorf("resumed, it halted with %+v", e.Result.Halt)
		}
	}
	if n := len(called); n != 0 {
		t.Errorf("an agent was called %d times for a stopped run", n)
	}
}

// onOneStore returns two buses on one store, whose leases are renewed too late to tell
// anything, and what is told of each call of their agents, which say nothing.
func onOneStore(t *testing.T, more string) (s, other *server.Server, called <-chan struct{}) {
	t.Helper()
	slow, called := newSilent(t)
	yaml := fmt.Sprintf(twoAgents, slow+"/v1", slow+"/v1") + "workers: {lease: 1h}\n" + more
	path := filepath.Join(t.TempDir(), "bus.db")
	return buildAt(t, path, yaml), buildAt(t, path, yaml), called
}

// TestStopElsewhere: G14, a run that a process drives which does not serve, such as agentbus
// run, halts when another one stops it, and not only when its lease is renewed.
func TestStopElsewhere(t *testing.T) {
	t.Parallel()
	s, other, called := onOneStore(t, "")
	defer closeAll(t, s, other)
	run := agentbus.NewRunID()
	halted := make(chan agentbus.Halt, 1)
	go func() {
		defer close(halted)
		for e, err := range s.Converse(t.Context(), server.Start{Conversation: "outer", Seed: "go", Run: run}, nil) {
			if err != nil {
				t.Error(err)
			}
			if e.Result != nil {
				halted <- e.Result.Halt
			}
		}
	}()
	<-called
	if _, err := other.Stop(t.Context(), run, "ops"); err != nil {
		t.Fatal(err)
	}
	if h := <-halted; h.Error == nil || h.Error.Code != agentbus.CodeRunStopped {
		t.Errorf("the driver halted with %+v", h)
	}
	<-halted // it uses the bus no more
}

// TestStopWhileDraining: G14, G31, a bus that drains learns as well that another process
// stopped a run that it drives.
func TestStopWhileDraining(t *testing.T) {
	t.Parallel()
	s, other, called := onOneStore(t, "drain_timeout: 4m\n")
	defer closeAll(t, s, other)
	addr, stop := serveAt(t, s)
	run, err := other.Submit(t.Context(), server.Start{Conversation: "inner", Seed: "go"})
	if err != nil {
		t.Fatal(err)
	}
	<-called
	var draining sync.WaitGroup
	defer draining.Wait()
	draining.Go(stop)
	soon(t, "the end of its listener", func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		return err != nil || c.Close() != nil
	})
	if _, err := other.Stop(t.Context(), run, "ops"); err != nil {
		t.Fatal(err)
	}
	soon(t, "its end", func() bool { return stored(t, other, run).State == agentbus.RunDone })
}

// TestStopNested: G14, also a run whose driver is itself an agent that is called.
func TestStopNested(t *testing.T) {
	t.Parallel()
	slow, called := newSilent(t)
	s := buildAt(t, filepath.Join(t.TempDir(), "bus.db"), fmt.Sprintf(twoAgents, slow+"/v1", slow+"/v1"),
		identity.StaticKey{Principal: agentbus.Principal{ID: "alice"}, Secret: user})
	defer closed(t, s)
	type got struct {
		status int
		body   string
	}
	done := make(chan got, 1)
	go func() { status, body := askAs(t, s, "user-secret", "inner", "r"); done <- got{status, body} }()
	<-called
	if n, err := s.Stop(t.Context(), "r", "ops"); n != 2 || err != nil {
		t.Errorf("stopped %d calls, %v", n, err)
	}
	if g := <-done; g.status != http.StatusForbidden || !strings.Contains(g.body, `"run_stopped"`) {
		t.Errorf("its caller reads %+v", g)
	}
	calls, err := s.Store().Calls(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if c.State != agentbus.CallVoided || c.Code != agentbus.CodeRunStopped || c.Cost != 0 {
			t.Errorf("recorded as %+v", c)
		}
	}
	if len(calls) != 2 {
		t.Errorf("%d calls, want 2", len(calls))
	}
}

// TestDeclaredAgents: G6, whom a declared conversation talks to is the operator's
// word: a caller that may call the conversation reaches them through it, and not
// by itself.
func TestDeclaredAgents(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a"), newAgent(t, "b")
	s := buildAt(t, filepath.Join(t.TempDir(), "bus.db"), fmt.Sprintf(twoAgents, a.URL+"/v1", b.URL+"/v1"), identity.StaticKey{
		Principal: agentbus.Principal{ID: "alice", Grants: &agentbus.Grants{Agents: []string{"inner"}}}, Secret: user,
	})
	defer closed(t, s)
	if status, body := askAs(t, s, "user-secret", "a", ""); status != http.StatusForbidden {
		t.Errorf("by itself: %d %s", status, body)
	}
	if status, body := askAs(t, s, "user-secret", "inner", "r"); status != http.StatusOK {
		t.Errorf("through the conversation: %d %s", status, body)
	}
	if diff := cmp.Diff([]row{{"inner", 0, "alice", 0}, {"a", 2, "alice", 10_000}, {"b", 2, "alice", 20_000}}, rows(t, s, "r")); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// E4, R19: a run that was stopped when nobody drove it is ended by a bus that serves
// its store, and no agent is called; so is one whose conversation has changed since, or is not configured any more, or was
// of agents that are not.
func TestStoppedOrphansEnd(t *testing.T) {
	t.Parallel()
	submits := func(s *server.Server) (agentbus.RunID, error) {
		return s.Submit(t.Context(), server.Start{Conversation: "inner", Seed: "go"})
	}
	crashed := func(s *server.Server) (agentbus.RunID, error) { // of agents that a command line named
		run := agentbus.NewRunID()
		_, err := s.Store().Open(t.Context(), agentbus.Execution{
			ID: agentbus.ExecutionID(run), Run: run, Conversation: "talk", Seed: "go", Began: time.Now(),
			Spec: json.RawMessage(`{"conversation":"talk","max_turns":2,"peers":[{"name":"a","url":"http://127.0.0.1:9/v1","model":"m"},{"name":"b","url":"http://127.0.0.1:9/v1","model":"m"}]}`),
		}, agentbus.Claim{})
		return run, err
	}
	spoke := func(s *server.Server) (run agentbus.RunID, err error) { // one turn, and was left in the next
		run = agentbus.NewRunID()
		for e, err := range s.Converse(t.Context(), server.Start{Conversation: "inner", Seed: "go", Run: run}, nil) {
			if err != nil {
				return run, err
			}
			if e.Type == conversation.EventTurnDone {
				break
			}
		}
		return run, nil
	}
	other := func(string) string { return "agents: {other: {kind: builtin, builtin: echo}}" }
	for name, tt := range map[string]struct {
		begin  func(*server.Server) (agentbus.RunID, error)
		change func(yaml string) string
	}{
		"changed": {submits, func(yaml string) string { return strings.Replace(yaml, "max_turns: 2", "max_turns: 3", 1) }},
		"gone":    {submits, other},
		"spoke":   {spoke, other},
		"peers":   {crashed, other},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endsStopped(t, tt.begin, tt.change)
		})
	}
}

// endsStopped fails t unless a run that is stopped while nobody drives it is ended by a
// bus whose configuration has changed.
func endsStopped(t *testing.T, begin func(*server.Server) (agentbus.RunID, error), change func(yaml string) string) {
	t.Helper()
	a := newAgent(t, "a")
	path := filepath.Join(t.TempDir(), "bus.db")
	s := buildAt(t, path, fmt.Sprintf(twoAgents, a.URL+"/v1", a.URL+"/v1"))
	run, err := begin(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Store().StopRun(t.Context(), run, "ops", "enough", time.Now()); err != nil { // and dies behind that
		t.Fatal(err)
	}
	closed(t, s)
	called := len(a.headers())
	s = buildAt(t, path, change(fmt.Sprintf(twoAgents, a.URL+"/v1", a.URL+"/v1")))
	defer closed(t, s)
	defer serve(t, s)()
	soon(t, "its end", func() bool { return stored(t, s, run).State == agentbus.RunDone })
	var last agentbus.Event
	for e, err := range s.Store().Events(t.Context(), agentbus.ExecutionID(run), -1) {
		if last = e; err != nil {
			t.Fatal(err)
		}
	}
	if last.Type != agentbus.EventRunCancelled || !strings.Contains(string(last.Data), `"reason":"enough"`) {
		t.Errorf("it ends with %s %s", last.Type, last.Data)
	}
	if n := len(a.headers()); n > called {
		t.Errorf("an agent was called %d times", n-called)
	}
}

// E57, R23: a run that is stopped once its driver has died in the middle of a turn tells the
// end of each node that it was in, once, and a replay tells the same.
func TestStopEndsWhatADriverDiedIn(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string {
			t.Helper()
			return "sqlite:" + sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db"))
		},
		"postgres": func(t *testing.T) string { t.Helper(); return stores.Database(t) },
	} {
		for _, tt := range []struct {
			conversation string
			dies         []error // what ends its drivers: ErrLeave writes nothing, as death does
			cancelled    int
		}{
			{"inner", []error{conversation.ErrLeave}, 1},
			{"both", []error{conversation.ErrLeave}, 2},
			{"inner", []error{conversation.ErrLeave, conversation.ErrLeave}, 1},
			{"inner", []error{context.Canceled}, 1}, // it told so itself
			{"inner", []error{context.Canceled, conversation.ErrLeave}, 2},
		} {
			t.Run(fmt.Sprintf("%s, %s, %d drivers, %d nodes, %s", name, tt.conversation, len(tt.dies), tt.cancelled, tt.dies[0].Error()[:3]), func(t *testing.T) {
				t.Parallel()
				slow, called := newSilent(t)
				s := buildOn(t, database(t), fmt.Sprintf(twoAgents, slow+"/v1", slow+"/v1")+"  both: {participants: [{agent: a}, {agent: b}], plan: fan-out}\n")
				defer closed(t, s)
				run := agentbus.NewRunID()
				for i, cause := range tt.dies {
					diesIn(t, s, server.Start{Conversation: tt.conversation, Seed: "go", Run: run, Resume: i > 0}, called, cause)
				}
				if _, err := s.Stop(t.Context(), run, "ops"); err != nil {
					t.Fatal(err)
				}
				types := map[string]int{}
				for e, err := range s.Store().Events(t.Context(), agentbus.ExecutionID(run), -1) {
					if types[e.Type]++; err != nil {
						t.Fatal(err)
					}
				}
				if types[agentbus.EventNodeCancelled] != tt.cancelled || types[agentbus.EventInvocationCompleted] != tt.cancelled || types[agentbus.EventRunCancelled] != 1 {
					t.Errorf("%v", types)
				}
			})
		}
	}
}

// diesIn drives a run until all whom its first step asks are called, and ends its driver.
func diesIn(t *testing.T, s *server.Server, st server.Start, called <-chan struct{}, cause error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	n := 1
	if st.Conversation == "both" {
		n = 2
	}
	go func() { // ends with what it waits for, or the test
		for range n {
			<-called
		}
		cancel(cause)
	}()
	for _, err := range s.Converse(ctx, st, nil) {
		if err != nil && !errors.Is(err, cause) {
			t.Error(err)
		}
	}
}

// E57: nodes that a driver died in, and that the next one brought to their end, are not
// ended once more by its halt.
func TestHaltEndsOnlyWhatADriverDiedIn(t *testing.T) {
	t.Parallel()
	var again atomic.Bool
	called := make(chan struct{}, 8)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		first := !again.Load()
		called <- struct{}{}
		switch {
		case first:
			<-r.Context().Done()
		case strings.Contains(string(body), `"b"`):
			w.WriteHeader(http.StatusBadRequest)
		default:
			_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}]}`)
		}
	}))
	t.Cleanup(srv.Close)
	s := buildAt(t, filepath.Join(t.TempDir(), "bus.db"), fmt.Sprintf(twoAgents, srv.URL+"/v1", srv.URL+"/v1")+"  both: {participants: [{agent: a}, {agent: b}], plan: fan-out}\n")
	defer closed(t, s)
	run := agentbus.NewRunID()
	diesIn(t, s, server.Start{Conversation: "both", Seed: "go", Run: run}, called, conversation.ErrLeave)
	again.Store(true)
	for e, err := range s.Converse(t.Context(), server.Start{Run: run, Resume: true}, nil) {
		if err != nil || e.Result != nil && e.Result.Halt.Kind != agentbus.HaltParticipantError {
			t.Errorf("%+v, %v", e.Result, err)
		}
	}
	if _, err := s.Stop(t.Context(), run, "ops"); err != nil {
		t.Fatal(err)
	}
	for e, err := range s.Store().Events(t.Context(), agentbus.ExecutionID(run), -1) {
		if err != nil || e.Type == agentbus.EventNodeCancelled {
			t.Errorf("%s of %s, %v", e.Type, e.Turn, err)
		}
	}
}
