package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/pgtest"
	"github.com/agentbus/agentbus/server"
)

// userKey is the key of one principal.
func userKey(secret string) identity.StaticKey {
	return identity.StaticKey{Secret: agentbus.NewCredential(secret), Principal: agentbus.Principal{ID: "user-1"}}
}

// newGated starts an agent that answers once let is closed, and counts calls.
func newGated(t *testing.T) (url string, calls *atomic.Int64, called, let chan struct{}) {
	t.Helper()
	calls, called, let = new(atomic.Int64), make(chan struct{}, 8), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := calls.Add(1)
		called <- struct{}{}
		<-let
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":"answer %d"}}]}`, n)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, calls, called, let
}

// TestReplicasAnswerOnce: G22, I7, a duplicate of a call that another replica
// executes waits for it, and both callers read the same bytes.
func TestReplicasAnswerOnce(t *testing.T) {
	t.Parallel()
	url, calls, called, let := newGated(t)
	yaml, store := fmt.Sprintf(twoAgents, url+"/v1", url+"/v1"), pgtest.Database(t)
	one, two := buildOn(t, store, yaml, userKey("secret-1")), buildOn(t, store, yaml, userKey("secret-1"))
	defer closeAll(t, one, two)
	run := agentbus.NewRunID()
	type answer struct {
		status int
		body   string
	}
	answers := make(chan answer, 2)
	ask := func(s *server.Server) {
		status, body := askAs(t, s, "secret-1", "a", run)
		answers <- answer{status, body}
	}
	go ask(one)
	<-called
	go ask(two)
	soon(t, "the duplicate", func() bool { return len(two.Live()) == 0 && len(one.Live()) == 1 })
	close(let)
	first, second := <-answers, <-answers
	if first != second || first.status != http.StatusOK || calls.Load() != 1 {
		t.Errorf("%d calls of the agent; %+v and %+v", calls.Load(), first, second)
	}
	v, err := one.Store().VerifyLedger(t.Context())
	if err != nil || v.Fault != "" || v.Entries != 1 || v.Charged != 10_000 {
		t.Errorf("the ledger: %+v, %v", v, err)
	}
}

// TestReplicasStopTogether: G14, a run that is stopped on one replica is cut and
// refused on the others.
func TestReplicasStopTogether(t *testing.T) {
	t.Parallel()
	slow, called := newSilent(t)
	yaml, store := fmt.Sprintf(twoAgents, slow+"/v1", slow+"/v1"), pgtest.Database(t)
	one, two := buildOn(t, store, yaml, userKey("secret-1")), buildOn(t, store, yaml, userKey("secret-1"))
	defer closeAll(t, one, two)
	defer serve(t, two)()
	run := agentbus.NewRunID()
	ended := make(chan string, 1)
	go func() {
		_, body := askAs(t, two, "secret-1", "a", run)
		ended <- body
	}()
	<-called
	if _, err := one.Stop(t.Context(), run, "ops"); err != nil {
		t.Fatal(err)
	}
	if body := <-ended; !strings.Contains(body, string(agentbus.CodeRunStopped)) {
		t.Errorf("the call that was cut: %s", body)
	}
	if status, body := askAs(t, two, "secret-1", "b", run); !strings.Contains(body, string(agentbus.CodeRunStopped)) {
		t.Errorf("a call after the stop: %d %s", status, body)
	}
}

func closeAll(t *testing.T, all ...*server.Server) {
	t.Helper()
	for _, s := range all {
		closed(t, s)
	}
}

// TestReplicasStream: G22, a duplicate of a stream that another replica executes
// reads it piece by piece, and both callers read the same bytes.
func TestReplicasStream(t *testing.T) {
	t.Parallel()
	const hello, rest = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n", "data: [DONE]\n\n"
	more, calls := make(chan struct{}), new(atomic.Int64)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, hello)
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, rest)
	}))
	t.Cleanup(agent.Close)
	yaml, store := fmt.Sprintf(twoAgents, agent.URL+"/v1", agent.URL+"/v1"), pgtest.Database(t)
	one, two := buildOn(t, store, yaml, userKey("secret-1")), buildOn(t, store, yaml, userKey("secret-1"))
	defer closeAll(t, one, two)
	defer serve(t, one)()
	defer serve(t, two)()
	run := agentbus.NewRunID()
	var bodies []io.ReadCloser
	for _, s := range []*server.Server{one, two} {
		body := openStream(t, s, run)
		defer body.Close() //nolint:errcheck // it was read
		got := make([]byte, len(hello))
		if _, err := io.ReadFull(body, got); err != nil || string(got) != hello { // the agent has said no more
			t.Errorf("%q, %v", got, err)
		}
		bodies = append(bodies, body)
	}
	close(more)
	for _, body := range bodies {
		if got, err := io.ReadAll(body); err != nil || string(got) != rest {
			t.Errorf("%q, %v", got, err)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls of the agent", calls.Load())
	}
}

// openStream asks agent a of s to stream.
func openStream(t *testing.T, s *server.Server, run agentbus.RunID) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, served(t, s).URL+"/v1/chat/completions",
		strings.NewReader(`{"model":"a","stream":true,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret-1")
	r.Header.Set("x-tangle-runid", string(run))
	r.Header.Set("x-tangle-turnid", string(run.Turn(0, "a")))
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res.Body
}
