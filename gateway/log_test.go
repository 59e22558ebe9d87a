package gateway_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// accessLines returns the lines of the access log, as they are read from JSON.
func (b *bus) accessLines() (lines []map[string]any) {
	for line := range strings.Lines(b.log.text()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			b.t.Fatalf("the log holds a line that is no JSON: %q", line)
		}
		if fields["msg"] == "call" {
			lines = append(lines, fields)
		}
	}
	return lines
}

// TestAccessLog: G32, one line a call with the named fields, whatever became of it.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	a.Price = price
	busy := newAgent(t, "busy", answerWith(http.StatusServiceUnavailable, "{}"))
	cut := newAgent(t, "cut", streamWith(helloEvent))
	b := newBus(t, nil, a, busy, cut)
	in := append(turn("r", "r.t0.critic"), "x-tangle-parent-turnid: r.t9.boss", "x-tangle-speaker: Zoë\u00a0", depth+"2")
	var ids []string
	for _, do := range []func() answer{
		func() answer {
			return b.send(http.MethodPost, chatRoute, ask("critic"), append(in, asRelay, forAlice)...)
		},
		func() answer { return b.send(http.MethodPost, chatRoute, ask("critic"), append(in, asAlice)...) },
		func() answer { return b.call("critic", append(turn("r", "x"), depth+"4")...) },
		func() answer { return b.call("nobody\n{}") },
		func() answer { return b.send(http.MethodPost, chatRoute, ask("critic")) },
		func() answer { return b.call("busy", turn("r", "y")...) },
		func() answer { return b.stream("cut", turn("r", "z")...) },
		func() answer {
			return b.send(http.MethodGet, "/agents/critic/a%0ab", "", append(turn("r", "g"), asAlice)...)
		},
		func() answer { return b.send(http.MethodGet, "/a2a/critic", "", asAlice) },
	} {
		got := do()
		ids = append(ids, got.header.Get("x-request-id"))
	}
	lines := b.accessLines()
	for deadline := time.Now().Add(patience); len(lines) < len(ids) && time.Now().Before(deadline); lines = b.accessLines() {
		runtime.Gosched() // a line is written behind its answer
	}
	if len(lines) != len(ids) {
		t.Fatalf("%d lines, want %d", len(lines), len(ids))
	}
	all := []string{
		"agent", "attempts", "caller", "code", "cost_micros", "depth", "level", "method", "msg", "parent_turn", "path", "payer", "request_id", "result", "run", "speaker", "state", "status", "time", "took", "turn",
	}
	for i, want := range []map[string]any{
		{
			"method": "POST", "path": chatRoute, "run": "r", "turn": "r.t0.critic", "parent_turn": "r.t9.boss", "depth": 2.0, "speaker": "zoe", "caller": "relay", "payer": "alice",
			"agent": "critic", "state": "settled", "result": "settled", "status": 200.0, "code": "", "attempts": 1.0, "cost_micros": 607.0, "request_id": ids[0],
		},
		{"caller": "alice", "payer": "alice", "state": "settled", "result": "replayed", "status": 200.0, "cost_micros": 0.0, "attempts": 1.0},
		{"state": "refused", "status": 429.0, "code": "bridge_depth_exceeded", "attempts": 0.0, "depth": 4.0},
		{"state": "refused", "status": 404.0, "code": "agent_not_found"},
		{"state": "refused", "status": 401.0, "code": "unauthenticated", "caller": "", "payer": ""},
		{"state": "voided", "status": 503.0, "code": "agent_unavailable", "cost_micros": 0.0},
		{"state": "voided", "status": 502.0, "code": "agent_unavailable", "cost_micros": 0.0},
		{"state": "passed", "status": 200.0, "code": "", "method": "GET", "path": "/agents/critic/a\nb"},
		{"state": "refused", "status": 405.0, "code": "invalid_request"},
	} {
		if diff := cmp.Diff(all, slices.Sorted(maps.Keys(lines[i]))); diff != "" {
			t.Errorf("line %d: fields (-want +got):\n%s", i, diff)
		}
		for k, v := range want {
			if lines[i][k] != v {
				t.Errorf("line %d: %s is %v, want %v", i, k, lines[i][k], v)
			}
		}
		if id := lines[i]["request_id"]; id != ids[i] && i != 1 { // a duplicate reads the first one's
			t.Errorf("line %d: request id %v, want %s", i, id, ids[i])
		}
	}
}
