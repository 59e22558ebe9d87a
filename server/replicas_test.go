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
