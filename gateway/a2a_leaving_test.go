package gateway_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// A15: what only reads is sent again when the connection breaks; nothing else
// is, once bytes were sent.
func TestA2ARetries(t *testing.T) {
	t.Parallel()
	a := newRawAgent(t, "critic", func(c net.Conn, r *http.Request) { /* hangs up */ })
	a.Target = target(t, "critic", strings.TrimSuffix(a.URL.String(), "/v1"))
	a.A2A = &gateway.A2AAgent{}
	b := newBus(t, nil, a)
	for method, want := range map[string]int{"GetTask": 2, "SendMessage": 1, "CancelTask": 1} {
		for len(a.heard) > 0 {
			<-a.heard
		}
		if got := b.send(http.MethodPost, "/a2a/critic", rpc("r1", method, `{"id":"t","message":{}}`), asAlice); fault(got) != "502 -32000 AGENT_UNAVAILABLE" {
			t.Errorf("%s: %v", method, got)
		}
		tries := 0
		for len(a.heard) > 0 {
			if h := <-a.heard; h.method == http.MethodPost {
				tries++
			}
		}
		if tries != want {
			t.Errorf("%s was tried %d times, want %d", method, tries, want)
		}
	}
}

// G14: a caller that leaves a stream finds it whole afterwards; the task is
// never cancelled for it.
func TestA2ALeaving(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(rpcWorking))
		_ = http.NewResponseController(w).Flush()
		<-left
		_, _ = w.Write([]byte(rpcChunk + rpcEnd))
	})
	b := newBus(t, nil, a)
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/a2a/critic", strings.NewReader(rpc("r1", "SendStreamingMessage", say("m1"))))
	same := append(turn("run1", "run1.t0.critic"), asAlice)
	r.Header = headerOf(same)
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = resp.Body.Close()
	close(left)
	b.one("run1", agentbus.CallSettled)
	if got := b.send(http.MethodPost, "/a2a/critic", rpc("r2", "SendStreamingMessage", say("m1")), same...); got.body != strings.ReplaceAll(rpcStream, `"r1"`, `"r2"`) {
		t.Error(got)
	}
	if a.executions() != 2 {
		t.Errorf("%d requests, one of them for the card", a.executions())
	}
}

// The kill switch ends a stream of A2A, and everything that only passes (G14).
func TestA2AStop(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(rpcWorking))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	b := newBus(t, nil, a)
	for _, method := range []string{"SendStreamingMessage", "SubscribeToTask"} {
		resp, err := b.open(http.MethodPost, "/a2a/critic", rpc("r1", method, say("m1")), asAlice, "x-tangle-runid: run-"+method)
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Stop(agentbus.RunID("run-" + method)); n != 1 {
			t.Errorf("%s: %d calls ended", method, n)
		}
		var read strings.Builder
		buf := make([]byte, 4096)
		for err == nil {
			var n int
			n, err = resp.Body.Read(buf)
			read.Write(buf[:n])
		}
		_ = resp.Body.Close()
		if !strings.Contains(read.String(), `"code":"run_stopped"`) {
			t.Errorf("%s: %s", method, read.String())
		}
	}
}
