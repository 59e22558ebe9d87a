package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// serve serves a bus until the function it returns is called, which waits.
func serve(t *testing.T, s *server.Server) (stop func()) {
	t.Helper()
	_, stop = serveAt(t, s)
	return stop
}

// serveAt is serve, and returns the address too.
func serveAt(t *testing.T, s *server.Server) (addr string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	return l.Addr().String(), func() {
		t.Helper()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

// soon waits until something is so.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(3 * time.Minute)
	defer late.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%s did not come", what)
		}
	}
}

func stored(t *testing.T, s *server.Server, run agentbus.RunID) agentbus.Execution {
	t.Helper()
	e, found, err := s.Store().Execution(t.Context(), agentbus.ExecutionID(run))
	if err != nil || !found {
		t.Fatalf("run %s: %v, %v", run, found, err)
	}
	return e
}

const sealingKey = "0123456789abcdef0123456789abcdef"

// sealing is the configuration of a sealing key.
func sealing(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sealing.key")
	if err := os.WriteFile(path, []byte(sealingKey), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("sealing: {key_file: %q}\n", path)
}

// R18: a sealed credential opens for the execution it was sealed for, and for no
// other; two sealings of one differ.
func TestSealedCredentialIsBoundToItsRun(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a"), newAgent(t, "b")
	s := open(t, fmt.Sprintf(twoAgents, a.URL+"/v1", b.URL+"/v1")+sealing(t))
	var runs []agentbus.Execution
	for range 2 {
		run, err := s.Submit(t.Context(), server.Start{Conversation: "rich", Seed: "go", Authorization: agentbus.NewCredential("Bearer user-secret")})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, stored(t, s, run))
	}
	first, _, err := s.Store().Sealed(t.Context(), runs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := s.Store().Sealed(t.Context(), runs[1].ID)
	if err != nil || bytes.Equal(first, second) || bytes.Contains(first, []byte("user-secret")) {
		t.Errorf("sealed as %x and %x, %v", first, second, err)
	}
	runs[1].Sealed = first // somebody who writes to the store
	if _, err := s.Store().Open(t.Context(), runs[1], agentbus.Claim{}); err != nil {
		t.Fatal(err)
	}
	defer serve(t, s)()
	soon(t, "both halts", func() bool {
		return stored(t, s, runs[0].Run).Halt != nil && stored(t, s, runs[1].Run).Halt != nil
	})
	if e := stored(t, s, runs[0].Run); e.Halt.Kind != agentbus.HaltBudget || e.Payer != "user-123" || e.Turns != 2 {
		t.Errorf("its own: %+v, %+v", e, e.Halt)
	}
	if e := stored(t, s, runs[1].Run); e.Halt.Kind != agentbus.HaltWaitingAuth || e.Turns != 0 {
		t.Errorf("another's: %+v, %+v", e, e.Halt)
	}
	for _, h := range a.headers() {
		if h.Get("x-tangle-forwarded-authorization") != "Bearer user-secret" {
			t.Errorf("the agent got %v", h)
		}
	}
}

// R17: in one process too a run has one driver.
func TestOneDriverInAProcess(t *testing.T) {
	t.Parallel()
	slow, called := newSilent(t)
	s := open(t, fmt.Sprintf(twoAgents, slow+"/v1", slow+"/v1"))
	run := agentbus.NewRunID()
	ctx, cancel := context.WithCancel(t.Context())
	halted := make(chan struct{})
	go func() {
		defer close(halted)
		for _, err := range s.Converse(ctx, server.Start{Conversation: "rich", Seed: "go", Run: run}, nil) {
			if err != nil {
				t.Error(err)
			}
		}
	}()
	<-called
	for _, err := range s.Converse(t.Context(), server.Start{Run: run, Resume: true}, nil) {
		if agentbus.CodeOf(err) != agentbus.CodeRunConflict || !strings.Contains(err.Error(), "this process already") {
			t.Errorf("driven twice: %v", err)
		}
	}
	cancel()
	<-halted
}

// R16: an agent that fails pauses its run, and a resume asks it again for the turn
// that failed, under the same id, whatever it had answered, and at whatever depth;
// G20: it is charged once.
func TestFailedTurnIsResumed(t *testing.T) {
	t.Parallel()
	event := func(data string) string { return "data: " + data + "\n\n" }
	const spent = `"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}`
	for name, answer := range map[string]http.HandlerFunc{
		"it broke":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"its key":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"its model":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"no words":    says("application/json", `{"choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":"no"},"finish_reason":"stop"}],`+spent+`}`),
		"white space": says("text/event-stream", event(`{"choices":[{"index":0,"delta":{"content":" \n"},"finish_reason":"stop"}],`+spent+`}`)+event("[DONE]")),
		"thoughts alone": says("text/event-stream", event(`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`)+
			event(`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}],`+spent+`}`)+event("[DONE]")),
	} {
		for _, of := range []string{"inner", "outer"} {
			t.Run(name+"/"+of, func(t *testing.T) {
				t.Parallel()
				resumesFailed(t, of, answer)
			})
		}
	}
}

func says(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}
}

// resumesFailed has b, who speaks second in the inner conversation, answer once
// with what is none.
func resumesFailed(t *testing.T, of string, answer http.HandlerFunc) {
	t.Helper()
	var broken atomic.Bool
	b := newAgent(t, "b")
	a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			answer(w, r)
			return
		}
		b.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	s := open(t, fmt.Sprintf(twoAgents, b.URL+"/v1", a.URL+"/v1"))
	broken.Store(true)
	failed := converse(t, s, server.Start{Conversation: of, Seed: "go"})
	if failed.Halt.Kind != agentbus.HaltParticipantError || len(failed.Turns) != 1 || stored(t, s, failed.Run).State != agentbus.RunPaused {
		t.Fatalf("%+v", failed.Halt)
	}
	broken.Store(false)
	done := converse(t, s, server.Start{Run: failed.Run, Resume: true})
	if done.Halt.Kind != agentbus.HaltMaxTurns || len(done.Turns) != 2 || done.Turns[1].ID != failed.Run.Turn(1, agentbus.Speaker(failed.Halt.Participant)) || done.Turns[1].Attempts < 2 {
		t.Errorf("%+v, %+v", done.Halt, done.Turns)
	}
	charged := map[string]agentbus.Micros{}
	for _, r := range rows(t, s, failed.Run) {
		charged[r.Agent] += r.Cost
	}
	if charged["b"] != 20_000 {
		t.Errorf("charged %v", charged)
	}
}

// R19: a run that was to end by a time is not gone on with after it, nor ended
// for good.
func TestWorkersKeepTheTimeout(t *testing.T) {
	t.Parallel()
	a, b := newAgent(t, "a"), newAgent(t, "b")
	s := open(t, fmt.Sprintf(twoAgents, a.URL+"/v1", b.URL+"/v1"))
	late, err := s.Submit(t.Context(), server.Start{Conversation: "inner", Seed: "go", Timeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	early, err := s.Submit(t.Context(), server.Start{Conversation: "inner", Seed: "go", Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer serve(t, s)()
	soon(t, "both halts", func() bool { return stored(t, s, late).Halt != nil && stored(t, s, early).Halt != nil })
	if h := stored(t, s, late).Halt; h.Kind != agentbus.HaltAbort || h.Reason == "" || h.Turns != 0 {
		t.Errorf("late: %+v", h)
	}
	if h := stored(t, s, early).Halt; h.Kind != agentbus.HaltMaxTurns {
		t.Errorf("early: %+v", h)
	}
}

// R19: no workers, no work; and no more runs at once than there are workers.
func TestAtMostSoManyWorkers(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int32
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"choices":[{"message":{"content":"yes"}}]}`)
	}))
	t.Cleanup(slow.Close)
	path := filepath.Join(t.TempDir(), "bus.db")
	text := fmt.Sprintf(twoAgents, slow.URL+"/v1", slow.URL+"/v1")
	idle := openAt(t, path, text+"workers: {max: 0}\n")
	stop := serve(t, idle)
	var runs []agentbus.RunID
	for range 20 {
		run, err := idle.Submit(t.Context(), server.Start{Conversation: "inner", Seed: "go"})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	stop()
	for _, run := range runs {
		if e := stored(t, idle, run); e.Lease.Epoch != 1 {
			t.Errorf("driven without workers: %+v", e)
		}
	}
	busy := openAt(t, path, text+"workers: {max: 3}\n")
	defer serve(t, busy)()
	soon(t, "the end of all", func() bool {
		for _, run := range runs {
			if stored(t, busy, run).State != agentbus.RunDone {
				return false
			}
		}
		return true
	})
	if n := most.Load(); n > 3 {
		t.Errorf("%d agents were asked at once by 3 workers", n)
	}
}

// allDone reports whether all runs of a store are done.
func allDone(t *testing.T, s *server.Server, runs int) bool {
	t.Helper()
	all, err := s.Store().RunSummaries(t.Context(), agentbus.RunFilter{}, runs, "")
	if err != nil || len(all) != runs {
		t.Fatalf("%d runs, %v", len(all), err)
	}
	for i := range all {
		if all[i].State != agentbus.RunDone {
			return false
		}
	}
	return true
}

// R19: thousands of runs in one process, of agents that take their time, all end.
// AGENTBUS_SOAK says how many; make soak has 10,000, docs/runs.md what was
// measured.
func TestSoak(t *testing.T) {
	t.Parallel()
	runs := 200
	if testing.Short() {
		runs = 50
	}
	if v := os.Getenv("AGENTBUS_SOAK"); v != "" {
		runs, _ = strconv.Atoi(v)
	}
	s := open(t, fmt.Sprintf(`
agents: {slow: {kind: builtin, builtin: slow}, echo: {kind: builtin, builtin: echo}}
conversations: {talk: {participants: [{agent: slow}, {agent: echo}], max_turns: 3}}
workers: {max: %d}
limits: {in_flight: %d}
`, runs, runs+100))
	for range runs {
		if _, err := s.Submit(t.Context(), server.Start{Conversation: "talk", Seed: "go"}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	stop := serve(t, s)
	var most runtime.MemStats
	atOnce := 0
	soon(t, "the end of all", func() bool {
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.Sys > most.Sys {
			most = m
		}
		atOnce = max(atOnce, s.Driving())
		waiting, err := s.Store().Orphans(t.Context(), agentbus.Claim{}, 1, func(string) bool { return true }, func(agentbus.ExecutionID) bool { return false })
		if err != nil {
			t.Fatal(err)
		}
		return len(waiting) == 0 && s.Driving() == 0 && allDone(t, s, runs) // there is a moment between the claim of a run and its drive
	})
	t.Logf("%d runs of 3 turns, %d at once, in %v, %d MiB of the system", runs, atOnce, time.Since(began).Round(time.Millisecond), most.Sys>>20)
	stop()
}
