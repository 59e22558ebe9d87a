package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// ask sends a message over A2A.
func ask(ctx context.Context, bus, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, bus+"/a2a/echo", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+aliceKey)
	r.Header.Set("A2A-Version", "1.0")
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	return string(raw), err
}

// A32, A19, G24: a task whose bus was killed with -9 goes on under the next one,
// in the same turn, where its credential is sealed; else it has failed, with an
// outcome that nobody knows. Its message is answered with what came of it.
func TestKilledTask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sealing    string
		says       string
		executions int64
	}{
		"with a sealing key": {"sealing: {key_env: SEAL}\n", "TASK_STATE_COMPLETED", 2},
		"without":            {"", "outcome_unknown", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var executions atomic.Int64
			var turns [2]atomic.Value
			called := make(chan struct{}, 4)
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // or the server does not see the bus die
				n := executions.Add(1)
				turns[min(n, 2)-1].Store(r.Header.Get("X-Tangle-Turnid") + r.Header.Get("X-Tangle-Forwarded-Authorization"))
				if n == 1 {
					called <- struct{}{}
					<-r.Context().Done()
					return
				}
				_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"hi"}}]}`)
			}))
			t.Cleanup(agent.Close)
			path := configure(t, fmt.Sprintf("%sagents: {echo: {kind: openai, url: %q}}\nkeys: [{id: alice, secret_env: ALICE}]\n", tt.sealing, agent.URL+"/v1"))
			seal := strings.Repeat("ab", 32)
			message := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`
			killedAmid(t, path, []string{"ALICE=" + aliceKey, "SEAL=" + seal}, called, func(url string) error {
				_, err := ask(t.Context(), url, message)
				return err
			})
			b := serving(t, path, map[string]string{"ALICE": aliceKey, "SEAL": seal}, "--quiet")
			for range 2 {
				if got, err := ask(t.Context(), b.url, message); err != nil || !strings.Contains(got, tt.says) {
					t.Errorf("after the crash: %s, %v", got, err)
				}
			}
			if n := executions.Load(); n != tt.executions {
				t.Errorf("%d executions, want %d", n, tt.executions)
			}
			if tt.executions == 2 && turns[0].Load() != turns[1].Load() {
				t.Errorf("the agent was told %q, then %q", turns[0].Load(), turns[1].Load())
			}
		})
	}
}
