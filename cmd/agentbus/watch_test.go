package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/openwop"
)

// The events of a run that is driven elsewhere are drawn as one that is driven
// here; what happens inside its calls, and what is of no turn, as lines.
func TestWatch(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := watch{live: liveOn(90, 24, &out), clock: true}
	w.live.calls = w.calls
	began := w.began
	after := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	tell := func(depth int, at time.Time, kind, turn, node string, data any) {
		t.Helper()
		raw, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		e := agentbus.Event{At: at, Type: kind, Run: "r", Node: node, Data: raw}
		if turn != "" {
			e.Turn = agentbus.TurnID("r." + turn)
		}
		if err := w.news(&news{Event: e, execution: &agentbus.Execution{Conversation: "talk", Depth: depth}}); err != nil {
			t.Fatal(err)
		}
	}
	type object = map[string]any
	said := func() string { // since it was asked last, without what was drawn below
		var lines []string
		for line := range strings.Lines(out.String()) {
			if _, text, ok := strings.Cut(line, "\x1b[J"); ok {
				line = text
			}
			if !strings.Contains(line, "⠋") && line != "[critic] We should\n" {
				lines = append(lines, line)
			}
		}
		out.Reset()
		return strings.Join(lines, "")
	}
	below := func() string { return strings.Join(w.region(), "\n") }

	tell(0, began, agentbus.EventRunStarted, "", "", object{})
	tell(0, after(1), agentbus.EventNodeStarted, "t0.critic", "critic", object{"agent": object{"name": "critic"}})
	tell(0, after(2), agentbus.EventOutputChunk, "t0.critic", "critic", object{"chunk": "We should"})
	w.saw("r", &openwop.Calling{Budget: 20_000, Calls: []openwop.LiveCall{
		{Turn: "r.t0.critic", Agent: "critic", Depth: 1, Began: after(1)}, {Turn: "r.t0.helper", Parent: "r.t0.critic", Agent: "helper", Depth: 2, Began: after(7)},
	}})
	want := "[critic] We should\n└─ ⠋ critic  t0.critic  depth 1  9.0s\n   └─ ⠋ helper  t0.helper  depth 2  3.0s\n⠋ 10.0s · 0 turns · tokens 0 in, 0 out · $0.000000 of $0.020000"
	if diff := cmp.Diff(want, below()); diff != "" {
		t.Errorf("while it is said (-want +got):\n%s", diff)
	}
	w.saw("r", &openwop.Calling{})
	tell(0, after(3), agentbus.EventNodeRetried, "t0.critic", "critic", object{"attempt": 1})
	tell(1, after(3), agentbus.EventNodeCompleted, "t0.helper", "helper", object{"agentbus": object{"cost_micros": 1}})
	tell(0, after(4), agentbus.EventNodeCompleted, "t0.critic", "critic", object{
		"outputs": object{"text": "We agree."}, "agentbus": object{"attempts": 2, "cost_micros": 1500, "usage": object{"input_tokens": 12, "output_tokens": 3}},
	})
	tell(0, after(5), agentbus.EventNodeStarted, "t1.b", "b", object{})
	tell(0, after(6), agentbus.EventNodeCancelled, "t1.b", "b", object{"reason": "the run halted"})
	tell(0, after(6), agentbus.EventNodeStarted, "t2.c", "c", object{})
	tell(0, after(7), agentbus.EventNodeFailed, "t2.c", "c", object{"agentbus": object{"cost_micros": 500}})
	tell(0, after(8), agentbus.EventRunPaused, "", "", object{"agentbus": object{"halt": object{"kind": "abort"}}})
	w.halted("r", &agentbus.Halt{Kind: agentbus.HaltAbort})
	want = `run r
[critic] failed, and is tried again: ×2
  t0.helper  node.completed  $0.000001
[critic] We agree.
  3.0s · tokens 12→3 · $0.001500 · ×2
t1.b  node.cancelled  
[c] failed
abort · 1 turn · tokens 12 in, 3 out · $0.002000 · agentbus trace r
`
	if diff := cmp.Diff(want, said()); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
	if want := "⠋ 10.0s · 1 turn · tokens 12 in, 3 out · $0.002000 · 1 retry"; below() != want {
		t.Errorf("below stands %q, want %q", below(), want)
	}
}
