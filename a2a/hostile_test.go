package a2a_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// hostile serves a JSON-RPC endpoint without a card: h answers each request by
// its method.
func hostile(t *testing.T, h func(w http.ResponseWriter, method string)) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
			return
		}
		if v := r.Header.Values("A2A-Version"); len(v) != 1 || v[0] != "1.0" { // A36
			t.Errorf("A2A-Version: %q", v)
		}
		if v := r.Header.Values("X-Tangle-Runid"); len(v) != 1 { // A36
			t.Errorf("x-tangle-runid: %q", v)
		}
		if v, sent := r.Header["Authorization"]; sent { // P22: it has no key of its own here
			t.Errorf("Authorization: %q", v)
		}
		body, _ := io.ReadAll(r.Body)
		_, rest, _ := strings.Cut(string(body), `"method":"`)
		method, _, _ := strings.Cut(rest, `"`)
		h(w, method)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func events(w http.ResponseWriter, results ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, r := range results {
		_, _ = fmt.Fprintf(w, ": keepalive\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":%s}\n\n", r)
	}
	_ = http.NewResponseController(w).Flush()
}

const (
	working   = `{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}}`
	completed = `{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"}}}`
	piece     = `{"artifactUpdate":{"taskId":"t1","contextId":"c1","append":%v,"artifact":{"artifactId":"a","parts":[{"text":"%s"}]}}}`
)

// local tells since when a status holds, in the local time of nowhere.
func local(event string) string {
	return strings.Replace(event, `"status":{`, `"status":{"timestamp":"2026-11-22T15:22:11.895818",`, 1)
}

// A33, A34, A35, X33: what a careless or hostile agent sends.
func TestHostileAgents(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer func(w http.ResponseWriter, method string)
		text   string
		code   agentbus.Code
		check  func(*agentbus.Error) bool
	}{
		"empty stream":       {answer: func(w http.ResponseWriter, _ string) { events(w) }, code: agentbus.CodeAgentUnavailable},                    // X33
		"ends while working": {answer: func(w http.ResponseWriter, _ string) { events(w, working) }, text: "", code: agentbus.CodeAgentUnavailable}, // X33
		"wrong content type": {answer: func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = fmt.Fprint(w, "hi")
		}, code: agentbus.CodeAgentUnavailable}, // X33
		"one answer as JSON": {answer: func(w http.ResponseWriter, _ string) {
			whole(w, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}`)
		}, text: "hi"}, // A33
		"one error as JSON": {answer: func(w http.ResponseWriter, _ string) { // A33
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"jsonrpc":"2.0","id":"1","error":{"code":-32602,"message":"bad @you"}}`)
		}, code: agentbus.CodeInvalidRequest, check: func(e *agentbus.Error) bool { return !strings.Contains(e.Message, "@") }}, // X32
		"unknown members": {answer: func(w http.ResponseWriter, _ string) { // A34
			events(w, working, `{"surprise":{}}`, fmt.Sprintf(piece, false, "hi"), completed)
		}, text: "hi"},
		"events of another task": {answer: func(w http.ResponseWriter, _ string) { // A34
			other := func(event string) string { return strings.ReplaceAll(event, `"t1"`, `"t2"`) }
			events(w, working, fmt.Sprintf(piece, false, "hi"), other(fmt.Sprintf(piece, true, " you")), other(completed), fmt.Sprintf(piece, true, " there"), completed)
		}, text: "hi there"},
		"an end of another task": {answer: func(w http.ResponseWriter, _ string) { // A33
			events(w, working, strings.ReplaceAll(completed, `"t1"`, `"t2"`))
		}, code: agentbus.CodeAgentUnavailable},
		"no blank line behind the last event": {answer: func(w http.ResponseWriter, _ string) { // G10
			events(w, working, fmt.Sprintf(piece, false, "hi"))
			_, _ = fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":"1","result":%s}`, completed)
		}, text: "hi"},
		"append and replace": {answer: func(w http.ResponseWriter, _ string) { // A34
			events(w, working, fmt.Sprintf(piece, false, "one "), fmt.Sprintf(piece, true, "two"), fmt.Sprintf(piece, false, "three"), completed)
		}, text: "three"},
		"times without a zone": {answer: func(w http.ResponseWriter, _ string) { // A34: what fasta2a sends
			events(w, local(working), fmt.Sprintf(piece, true, "h"), fmt.Sprintf(piece, true, "i"), fmt.Sprintf(piece, false, "hi"), local(completed))
		}, text: "hi"},
		"times without a zone, looked at": {answer: func(w http.ResponseWriter, method string) { // A34
			if method == "GetTask" {
				whole(w, local(`{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"hi"}]}]}`))
				return
			}
			whole(w, local(working))
		}, text: "hi"},
		"a refusal": {answer: func(w http.ResponseWriter, _ string) { // A35
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(w, "down", strings.Repeat("x", 10_000))
		}, code: agentbus.CodeAgentUnavailable, check: func(e *agentbus.Error) bool {
			return e.RetryAfter == 7*time.Second && e.Status == 503 && strings.Contains(e.Message, "down") && len(e.Message) < 2500
		}},
		"a refusal for longer than there is": {answer: func(w http.ResponseWriter, _ string) { // R11
			w.Header().Set("Retry-After", "99999999999999999999")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, code: agentbus.CodeAgentUnavailable, check: func(e *agentbus.Error) bool { return e.RetryAfter > 365*24*time.Hour }},
		"a redirect": {answer: func(w http.ResponseWriter, _ string) { // A35, P23
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, code: agentbus.CodeAgentRedirected},
		"our refusal": {answer: func(w http.ResponseWriter, _ string) { // P11
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprint(w, `{"jsonrpc":"2.0","id":"1","error":{"code":-32000,"message":"no","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"BRIDGE_DEPTH_EXCEEDED","domain":"agentbus","metadata":{"code":"bridge_depth_exceeded"}}]}}`)
		}, code: agentbus.CodeDepthExceeded},
		"subscription without a task": {answer: func(w http.ResponseWriter, method string) { // A34
			if method == "GetTask" {
				whole(w, `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}`)
				return
			}
			if method == "SubscribeToTask" {
				events(w, completed)
				return
			}
			whole(w, working)
		}, code: agentbus.CodeAgentUnavailable},
		"a look that tells of no task": {answer: func(w http.ResponseWriter, method string) { // A34
			if method == "GetTask" {
				whole(w, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}`)
				return
			}
			whole(w, working)
		}, code: agentbus.CodeAgentUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := collect(t, newBackend(t, a2a.BackendConfig{URL: hostile(t, tt.answer)}), call("hello"))
			if got.Text != tt.text || agentbus.CodeOf(err) != tt.code {
				t.Fatalf("got %q, %v", got.Text, err)
			}
			if e, _ := errors.AsType[*agentbus.Error](err); tt.check != nil && !tt.check(e) {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func whole(w http.ResponseWriter, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"1","result":%s}`, result)
}

// cut ends the connection in the middle.
func cut(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// A22, A23: a connection that is lost is made again once the task is known, and
// nothing is said twice.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	var sent, subscribed atomic.Int32
	url := hostile(t, func(w http.ResponseWriter, method string) {
		switch method {
		case "SendStreamingMessage":
			sent.Add(1)
			events(w, working, fmt.Sprintf(piece, false, "one "))
			cut(w)
		case "GetTask":
			whole(w, `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"},"artifacts":[{"artifactId":"a","parts":[{"text":"one "},{"text":"two "}]}]}`)
		case "SubscribeToTask":
			snapshot := `{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"},"artifacts":[{"artifactId":"a","parts":[{"text":"one two "}]}]}}`
			if subscribed.Add(1) == 1 {
				events(w, snapshot)
				cut(w)
			}
			events(w, snapshot, fmt.Sprintf(piece, true, "three"), completed)
		}
	})
	got, err := collect(t, newBackend(t, a2a.BackendConfig{URL: url}), call("hello"))
	if err != nil || got.Text != "one two three" || sent.Load() != 1 {
		t.Errorf("got %q, %v after %d messages", got.Text, err, sent.Load())
	}
}

// A22, A34: a task that its agent does not know any more is no refusal of what was
// asked, and a stream about another task not that of this one: the turn may be sent again.
func TestForgottenTask(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(w http.ResponseWriter, method string){
		"forgotten": func(w http.ResponseWriter, _ string) {
			_, _ = fmt.Fprint(w, `{"jsonrpc":"2.0","id":"1","error":{"code":-32001,"message":"no such task"}}`)
		},
		"another": func(w http.ResponseWriter, method string) {
			if method == "GetTask" {
				whole(w, `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}`)
				return
			}
			events(w, `{"task":{"id":"t2","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"theirs"}]}]}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int32
			url := hostile(t, func(w http.ResponseWriter, method string) {
				switch {
				case method != "SendStreamingMessage":
					w.Header().Set("Content-Type", "application/json")
					look(w, method)
				case sent.Add(1) == 1:
					events(w, working, fmt.Sprintf(piece, false, "one "))
					cut(w)
				default:
					events(w, working, fmt.Sprintf(piece, false, "two"), completed)
				}
			})
			b := newBackend(t, a2a.BackendConfig{URL: url, Sessions: &memory{}})
			turn := call("hello")
			if _, err := collect(t, b, turn); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable || !agentbus.AsError(err).Retryable() {
				t.Errorf("%v", err)
			}
			if got, err := collect(t, b, turn); name == "forgotten" && (err != nil || got.Text != "two") {
				t.Errorf("again: %q, %v", got.Text, err)
			}
		})
	}
}

// A22: a message whose fate nobody knows is sent again to an idempotent agent,
// and to no other.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, idempotent := range map[string]bool{"idempotent": true, "not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int32
			url := hostile(t, func(w http.ResponseWriter, _ string) {
				if sent.Add(1) == 1 {
					panic(http.ErrAbortHandler)
				}
				events(w, working, fmt.Sprintf(piece, false, "hi"), completed)
			})
			got, err := collect(t, newBackend(t, a2a.BackendConfig{URL: url, Idempotent: idempotent}), call("hello"))
			if idempotent && (err != nil || got.Text != "hi") || !idempotent && (agentbus.CodeOf(err) != agentbus.CodeOutcomeUnknown || sent.Load() != 1) {
				t.Errorf("got %q, %v after %d messages", got.Text, err, sent.Load())
			}
		})
	}
}

// P24: what the card says does not send credentials to another host: the
// configured URL is called in its place, unless it is that of the card.
func TestCardElsewhere(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			whole(w, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"name":"x","supportedInterfaces":[{"url":"http://127.0.0.1:1/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{}}`)
	}))
	t.Cleanup(srv.Close)
	if got, err := collect(t, newBackend(t, a2a.BackendConfig{URL: srv.URL + "/agent"}), call("hello")); err != nil || got.Text != "hi" {
		t.Errorf("got %q, %v", got.Text, err)
	}
	if _, err := collect(t, newBackend(t, a2a.BackendConfig{URL: srv.URL + "/card.json"}), call("hello")); agentbus.CodeOf(err) != agentbus.CodeForbidden {
		t.Errorf("got %v", err)
	}
}

// A10, A33: the SDK for JavaScript writes a card whose security schemes the one
// for Go cannot read. They are not needed to call it.
func TestCardOfAnotherSDK(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/rpc" {
			events(w, working, fmt.Sprintf(piece, false, "hi"), completed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"name":"x","supportedInterfaces":[{"url":"http://%s/rpc","protocolBinding":"JSONRPC","tenant":"","protocolVersion":"1.0"}],
			"capabilities":{"streaming":true,"extensions":[]},"skills":[],"signatures":[],
			"securitySchemes":{"key":{"scheme":{"$case":"httpAuthSecurityScheme","value":{"scheme":"Bearer"}}}},
			"securityRequirements":[{"schemes":{"key":{"list":[]}}}]}`, r.Host)
	}))
	t.Cleanup(srv.Close)
	if got, err := collect(t, newBackend(t, a2a.BackendConfig{URL: srv.URL}), call("hello")); err != nil || got.Text != "hi" {
		t.Errorf("got %q, %v", got.Text, err)
	}
}

// C16, X11: a message carries the hop that was signed for it, in its header and its
// metadata, and another one when it comes again; what asks for its task carries none.
func TestC16EachMessageHasItsHop(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var heard []string // method, hop in the header and in the metadata, of each request
	sent := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		in := gjson.ParseBytes(body)
		mu.Lock()
		heard = append(heard, in.Get("method").Str+" "+strings.Join(r.Header.Values("X-Agentbus-Hop"), "|")+" "+in.Get("params.message.metadata.mentionable.chain_token").Str)
		sent++
		lost := sent == 1
		mu.Unlock()
		switch {
		case lost:
			panic(http.ErrAbortHandler)
		case in.Get("method").Str == "SendStreamingMessage":
			whole(w, working)
		default:
			whole(w, `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"}}`)
		}
	}))
	t.Cleanup(srv.Close)
	c := call("hello")
	c.Lineage.Chain = &agentbus.AgentChain{Hop: 1, MaxHops: 4}
	signed := 0
	ctx := a2a.WithHop(t.Context(), func(_ context.Context, messageID string) (string, error) {
		signed++
		return fmt.Sprintf("%s.%d", messageID, signed), nil
	})
	if _, err := agentbus.Collect(newBackend(t, a2a.BackendConfig{URL: srv.URL, Idempotent: true}).Call(ctx, c)); err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(strings.Fields(heard[0])[1], ".")
	want := []string{"SendStreamingMessage " + id + ".1 " + id + ".1", "SendStreamingMessage " + id + ".2 " + id + ".2", "GetTask  "}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
