package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// G24: what a bus that was killed with -9 left executing goes to the agent again,
// or, where its operator says so, to nobody until an operator has decided.
func TestOnCrash(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]struct {
		status     int
		says       string
		executions int64
	}{
		"retry":  {http.StatusOK, `"content":"hi"`, 2},
		"refuse": {http.StatusConflict, `"code":"outcome_unknown"`, 1},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			var executions atomic.Int64
			called := make(chan struct{}, 4)
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // or the server does not see the bus die
				if n := executions.Add(1); n == 1 {
					called <- struct{}{}
					<-r.Context().Done()
					return
				}
				_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"hi"}}]}`)
			}))
			t.Cleanup(agent.Close)
			path := configure(t, fmt.Sprintf("agents: {echo: {kind: openai, url: %q, on_crash: %s}}\nkeys: [{id: alice, secret_env: ALICE}]\n", agent.URL+"/v1", policy))
			killedAmid(t, path, []string{"ALICE=" + aliceKey}, called, func(url string) error {
				_, _, _, err := post(t.Context(), url, aliceKey, hello, turnHeader("r", "echo", 0))
				return err
			})
			b := serving(t, path, aliceEnv, "--quiet")
			for range 2 {
				status, _, body := mustPost(t, b.url, aliceKey, hello, turnHeader("r", "echo", 0))
				if status != want.status || !strings.Contains(body, want.says) {
					t.Errorf("after the crash: %d %s", status, body)
				}
			}
			if n := executions.Load(); n != want.executions {
				t.Errorf("%d executions, want %d", n, want.executions)
			}
		})
	}
}
