package conversation_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// payloads are those of the events of a type.
func payloads(rec conversation.Record, kind string) (all []string) {
	for _, e := range rec.Events {
		if e.Type == kind {
			all = append(all, string(e.Data))
		}
	}
	return all
}

// deciding is a conversation whose first participant decides.
func deciding(a *agents, reply string) conversation.Conversation {
	c := talk(2, "a", a.says(reply), "b", a.says("B"))
	c.Participants[0].Decides = true
	return c
}

// E30: a confidence below the threshold escalates; one that equals it, none, and
// what is no confidence do not.
func TestConfidence(t *testing.T) {
	t.Parallel()
	half := 0.5
	for name, tt := range map[string]struct {
		reply     string
		threshold *float64
		waits     bool
		event     string // agent.decided
	}{
		"below":            {`{"decision":{"go":1},"confidence":0.69}`, nil, true, `{"agentId":"host:a","decision":{"go":1},"confidence":0.69}`},
		"equal":            {`{"decision":{"go":1},"confidence":0.7}`, nil, false, `{"agentId":"host:a","decision":{"go":1},"confidence":0.7}`},
		"none":             {"I thought.\n" + `{"decision":"go"}`, nil, false, `{"agentId":"host:a","decision":"go"}`},
		"out of range":     {`{"decision":"go","confidence":-1}`, nil, false, `{"agentId":"host:a","decision":"go"}`},
		"no number":        {`{"decision":"go","confidence":"NaN"}`, nil, false, `{"agentId":"host:a","decision":"go"}`},
		"the run's":        {`{"decision":"go","confidence":0.6}`, &half, false, `{"agentId":"host:a","decision":"go","confidence":0.6}`},
		"nothing decided":  {`just text`, nil, false, ""},
		"no decision":      {`{"confidence":0.1}`, nil, false, ""},
		"below the run's":  {`{"decision":"go","confidence":0.4}`, &half, true, `{"agentId":"host:a","decision":"go","confidence":0.4}`},
		"in a fence":       {"```json\n" + `{"decision":"go","confidence":0.1}` + "\n```", nil, true, `{"agentId":"host:a","decision":"go","confidence":0.1}`},
		"the last line is": {"so:\n" + `{"decision":"go","confidence":0.1}` + "\n", nil, true, `{"agentId":"host:a","decision":"go","confidence":0.1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a agents
			m := newRecorder()
			r, err := ran(t.Context(), deciding(&a, tt.reply), conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m, Threshold: tt.threshold})
			if err != nil || (r.Halt.Kind == agentbus.HaltWaiting) != tt.waits {
				t.Fatalf("%+v, %v", r.Halt, err)
			}
			rec := m.record("r")
			if got := strings.Join(payloads(rec, agentbus.EventAgentDecided), " "); got != tt.event {
				t.Errorf("decided %s", got)
			}
			if odd := strings.Contains(tt.reply, "-1") || strings.Contains(tt.reply, "NaN"); odd != (len(payloads(rec, agentbus.EventLogAppended)) == 1) {
				t.Error("the warning", payloads(rec, agentbus.EventLogAppended))
			}
		})
	}
}

// E31, E32, E34: a decision of low confidence waits, is told before it does, and
// stands when it is ratified: nobody is asked again, and nothing escalates twice.
func TestRatifies(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": `"go"`, `{"stop":1}`: `{"stop":1}`, `"fenced"`: `"fenced"`, `"twice"`: `"twice"`} {
		var a agents
		m := newRecorder()
		before, behind := "so\n", ""
		switch text {
		case `"fenced"`:
			before, behind = "```json\n", "\n```"
		case `"twice"`: // the opening fence says it too
			before, behind = "```"+`{"decision":"go","confidence":0.2}`+"\n", "\n```"
		}
		c, o := deciding(&a, before+`{"decision":"go","confidence":0.2}`+behind), conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
		r, err := ran(t.Context(), c, o)
		id := waits(t, r, err)[0]
		suspended := payloads(m.record("r"), agentbus.EventNodeSuspended)[0]
		for _, part := range []string{`"kind":"low-confidence"`, `"reason":"low-confidence"`, `"agentId":"host:a"`, `"threshold":0.7`, `"observed":0.2`} {
			if !strings.Contains(suspended, part) {
				t.Errorf("%s lacks %s", suspended, part)
			}
		}
		if !m.Resolve(id, agentbus.Resolution{Decision: agentbus.DecisionGranted, Text: text, By: "zoë"}) {
			t.Fatal("it was decided")
		}
		r, err = ran(t.Context(), c, o)
		if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || len(a.calls) != 2 || r.Spent != 20_000 {
			t.Fatalf("%+v, %v: %v, spent %d", r.Halt, err, a.turns(), r.Spent)
		}
		if said := r.Turns[0].Reply.Text; said != before+`{"decision":`+want+`}`+behind {
			t.Errorf("it stands as %q", said)
		}
		rec := m.record("r")
		decided := payloads(rec, agentbus.EventAgentDecided)
		if diff := cmp.Diff([]string{`{"agentId":"host:a","decision":"go","confidence":0.2}`, `{"agentId":"host:a","decision":` + want + `}`}, decided); diff != "" {
			t.Error(diff)
		}
		if n := len(payloads(rec, agentbus.EventWaitRequested)); n != 1 {
			t.Errorf("it escalated %d times", n)
		}
		if got := strings.Join(kinds(rec), "|"); !strings.Contains(got, "agent.decided t0.a|interrupt.requested t0.a|node.suspended t0.a|run.waiting|run.resumed|interrupt.resolved t0.a|node.resumed t0.a|agent.decided t0.a") {
			t.Error(got)
		}
	}
}

// E32: a decision that is rejected ends the run, whatever else an error does.
func TestRejects(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c, o := deciding(&a, `{"decision":"go","confidence":0.2}`), conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	r, err := ran(t.Context(), c, o)
	m.Resolve(waits(t, r, err)[0], agentbus.Resolution{Decision: agentbus.DecisionDenied})
	r, err = ran(t.Context(), c, o)
	rec := m.record("r")
	if err != nil || !r.Halt.Final() || len(a.calls) != 1 {
		t.Fatalf("%+v, %v", r.Halt, err)
	}
	for _, kind := range []string{agentbus.EventNodeFailed, agentbus.EventRunFailed} {
		if p := payloads(rec, kind); len(p) != 1 || !strings.Contains(p[0], `"code":"decision_rejected"`) {
			t.Errorf("%s %s", kind, p)
		}
	}
}

// E31, E58: a moderator's choice of low confidence is held: nobody reads it as the
// orchestrator's before it is ratified, and another one may be put in its place.
func TestModeratorIsHeld(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(4, "mod", a.says(`{"next":"b","confidence":0.1}`, "done"), "b", a.says("B"), "c", a.says("C"))
	c.Plan = conversation.Moderator{Decides: "mod", Others: []agentbus.Speaker{"b", "c"}}
	o := conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}
	r, err := ran(t.Context(), c, o)
	id := waits(t, r, err)[0]
	if p := append(payloads(m.record("r"), agentbus.EventOrchestratorDecided), payloads(m.record("r"), agentbus.EventAgentDecided)...); len(p) > 0 {
		t.Error("it was told before:", p)
	}
	m.Resolve(id, agentbus.Resolution{Decision: agentbus.DecisionGranted, Text: `{"kind":"next-worker","nextWorkerIds":["c"]}`})
	r, err = ran(t.Context(), c, o)
	if err != nil || r.Halt.Kind != agentbus.HaltDone || outcomes(r.Turns[1:2]) != "1 c done C" {
		t.Errorf("%+v, %v: %s", r.Halt, err, outcomes(r.Turns))
	}
	if p := payloads(m.record("r"), agentbus.EventOrchestratorDecided); len(p) != 2 || !strings.Contains(p[0], `"nextWorkerIds":["c"]`) {
		t.Error(p)
	}
}

// E33: where nobody is to be asked, the decision stands and one event tells so.
func TestEscalationOff(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	r, err := ran(t.Context(), deciding(&a, `{"decision":"go","confidence":0.2}`), conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m, NoEscalation: true})
	if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Fatalf("%+v, %v", r.Halt, err)
	}
	want := []string{`{"kind":"confidence-escalation-suppressed","agentId":"host:a","threshold":0.7,"observed":0.2}`}
	if diff := cmp.Diff(want, payloads(m.record("r"), agentbus.EventEscalationSuppressed)); diff != "" {
		t.Error(diff)
	}
}

// E27, E28: a tool that is not on the list is told as forbidden, with the hash of
// what it was to be given in its canonical form, without secrets.
func TestTools(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	calls := []agentbus.Chunk{
		{ToolCall: &agentbus.ToolCall{ID: "1", Name: "search", Arguments: `{"b":1.0, "a":2}`}}, {ToolCall: &agentbus.ToolCall{Name: "rm", Arguments: `{}`}}, {Text: "done"},
	}
	c := talk(2, "a", a.streams(nil, calls...), "b", a.streams(nil, calls...))
	c.Participants[0].Tools = []string{"a:search"}
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	rec := m.record("r")
	var got []string
	for _, p := range payloads(rec, agentbus.EventAgentToolReturned) {
		var r agentbus.AgentToolReturned
		if err := json.Unmarshal([]byte(p), &r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r.ToolName+" "+r.Status+" "+r.Error.Code)
	}
	if diff := cmp.Diff([]string{"a:search error tool_result_unknown", "a:rm forbidden forbidden", "b:search error tool_result_unknown", "b:rm error tool_result_unknown"}, got); diff != "" {
		t.Error(diff)
	}
	const sum = "d3626ac30a87e6f7a6428233b3c68299976865fa5508e4267c5415c76af7a772" // of {"a":2,"b":1}
	if p := payloads(rec, agentbus.EventAgentToolCalled)[0]; !strings.Contains(p, `"argsHash":"`+sum+`"`) {
		t.Error(p)
	}
}

// E55: whom a mention gives the word to is told as a hand-over; the order of
// speaking is not.
func TestMentionsAreHandOvers(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(3, "a", a.says("@c, please"), "b", a.says("B"), "c", a.does(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "C"}, nil
	}))
	c.Plan = conversation.Relay{{Speaker: "a"}, {Speaker: "b"}, {Speaker: "c"}}
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r", Seed: "s", Journal: m, Runs: m}); err != nil {
		t.Fatal(err)
	}
	want := []string{}
	for _, p := range payloads(m.record("r"), agentbus.EventAgentHandoff) {
		var h agentbus.AgentHandoff
		_ = json.Unmarshal([]byte(p), &h)
		want = append(want, h.FromAgentID+" "+h.ToAgentID+" "+h.Reason)
	}
	if len(want) == 0 || want[0] != "host:a host:c mentioned" {
		t.Error(want)
	}
}
