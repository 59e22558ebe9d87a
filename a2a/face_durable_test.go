package a2a_test

import (
	"bytes"
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// X35, A19: a hundred times the same message is one execution, and one task.
func TestFaceDedupes(t *testing.T) {
	t.Parallel()
	gate, called := make(chan struct{}), make(chan struct{}, 100)
	u := newBus(t, a2a.FaceConfig{}, agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		called <- struct{}{}
		return gated(gate).Call(ctx, c)
	}), false)
	ids := make(chan string, 100)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			method, path := "SendMessage", ""
			body := rpc(method, `{"message":{"role":"ROLE_USER","parts":[{"text":"x"}],"messageId":"m"},"configuration":{"historyLength":`+strconv.Itoa(i%3)+`}}`)
			if i%2 == 1 {
				body, path = message("m", "x"), "/rest/message:stream"
			}
			_, _, got := u.post(t, path, body)
			_, rest, _ := strings.Cut(got, `"id":"run_`)
			id, _, _ := strings.Cut(rest, `"`)
			if !strings.Contains(got, "COMPLETED") || !strings.Contains(got, "two") {
				t.Errorf("got %s", got)
			}
			ids <- id
		})
	}
	<-called
	close(gate)
	wg.Wait()
	close(ids)
	first := <-ids
	for id := range ids {
		if id != first || id == "" {
			t.Fatalf("tasks %q and %q", first, id)
		}
	}
	if n := u.calls.Load(); n != 1 {
		t.Errorf("%d executions", n)
	}
}

// A32, G24: a task whose process died is executed again, in the same turn, where
// its credential is kept; else it has failed, and says why. A20: also when its
// message comes again.
func TestFaceRecovers(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string]bool{"with its credential": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := place(t, t.TempDir())
			began, turns := make(chan struct{}), make(chan *agentbus.Call, 2)
			hangs := agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
				return func(func(agentbus.Chunk, error) bool) {
					turns <- c
					close(began)
					<-ctx.Done()
				}
			})
			config := a2a.FaceConfig{Tasks: store, Owner: "p1", Agent: func(string) (a2a.Served, bool) { return a2a.Served{Backend: hangs}, true }}
			if sealed {
				config.Seal = func(task string, c agentbus.Credential) ([]byte, error) { return []byte(task + c.Reveal()), nil }
				config.Unseal = func(_ context.Context, task string, _ agentbus.Payer, sealed []byte) (agentbus.Credential, bool, error) {
					return agentbus.NewCredential(strings.TrimPrefix(string(sealed), task)), true, nil
				}
			}
			first, err := a2a.NewFace(config)
			if err != nil {
				t.Fatal(err)
			}
			l := agentbus.Lineage{Run: "run_x", Turn: "run_x.t0.critic", Auth: agentbus.NewCredential("Bearer sk-user-1234"), Depth: 1, Chain: &agentbus.AgentChain{Hop: 1, MaxHops: 4}}
			req := &a2a.Request{Agent: "critic", Caller: agentbus.Principal{ID: "ann"}, Payer: "ann", Lineage: l, Minted: true}
			serve := func(f *a2a.Face, ctx context.Context, body string) string {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/a2a/critic", strings.NewReader(body)).WithContext(a2a.NewContext(ctx, req))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("A2A-Version", "1.0")
				f.ServeHTTP(w, r)
				return w.Body.String()
			}
			body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"returnImmediately":true}}}`
			serve(first, t.Context(), body)
			<-began
			first.Close() // as a crash leaves it: nothing of the end is stored
			config.Owner = "p2"
			config.Agent = func(string) (a2a.Served, bool) {
				return a2a.Served{Backend: agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
					turns <- c
					return agentbus.Chunk{Text: "back"}, nil
				})}, true
			}
			second, err := a2a.NewFace(config)
			if err != nil {
				t.Fatal(err)
			}
			defer second.Close()
			if n, err := second.Recover(t.Context()); n != 1 || err != nil {
				t.Fatalf("recovered %d, %v", n, err)
			}
			body = strings.Replace(body, `,"configuration":{"returnImmediately":true}`, "", 1)
			got := serve(second, t.Context(), body)
			if !sealed {
				if !strings.Contains(got, "TASK_STATE_FAILED") || !strings.Contains(got, "outcome_unknown") {
					t.Errorf("got %s", got)
				}
				return
			}
			if !strings.Contains(got, "TASK_STATE_COMPLETED") || !strings.Contains(got, "back") {
				t.Errorf("got %s", got)
			}
			a, b := <-turns, <-turns
			if a.Lineage.Turn != b.Lineage.Turn || b.Lineage.Auth.Reveal() != "Bearer sk-user-1234" || *b.Lineage.Chain != *a.Lineage.Chain {
				t.Errorf("%+v, then %+v", a.Lineage, b.Lineage)
			}
			if stored, _, _ := store.Task(t.Context(), "run_x"); bytes.Contains(stored.Work, []byte("sk-user")) || stored.Work != nil || stored.Sealed != nil {
				t.Errorf("stored: %+v", stored)
			}
		})
	}
}

// G31, A32: a face that drains takes nothing new, and what it executes to its end.
func TestFaceDrains(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	u := newBus(t, a2a.FaceConfig{}, gated(gate), false)
	c := u.client(t, sdk.TransportProtocolJSONRPC)
	req := say("hi")
	req.Config = &sdk.SendMessageConfig{ReturnImmediately: true}
	got, err := c.SendMessage(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	u.face.Drain(gone) // who does not wait
	if _, _, body := u.post(t, "", rpc("SendMessage", message("late", "x"))); !strings.Contains(body, "DRAINING") {
		t.Errorf("a new message: %s", body)
	}
	if _, err := c.SendMessage(t.Context(), req); err != nil { // what is known is answered
		t.Errorf("the same message: %v", err)
	}
	close(gate)
	u.face.Drain(t.Context())
	task, err := c.GetTask(t.Context(), &sdk.GetTaskRequest{ID: got.TaskInfo().TaskID})
	if err != nil || task.Status.State != sdk.TaskStateCompleted || textOf(task) != "one two" {
		t.Errorf("got %+v, %v", task, err)
	}
}

// A32: tasks are bounded: one too many is refused, to come again.
func TestFaceHasRoom(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	defer close(gate)
	u := newBus(t, a2a.FaceConfig{MaxTasks: 1}, gated(gate), false)
	now := `,"configuration":{"returnImmediately":true}}`
	if _, _, body := u.post(t, "", rpc("SendMessage", strings.TrimSuffix(message("a", "x"), "}")+now)); !strings.Contains(body, "run_") {
		t.Fatalf("got %s", body)
	}
	if status, _, body := u.post(t, "", rpc("SendMessage", strings.TrimSuffix(message("b", "x"), "}")+now)); status != http.StatusServiceUnavailable || !strings.Contains(body, "OVERLOADED") {
		t.Errorf("%d %s", status, body)
	}
}
