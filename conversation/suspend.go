package conversation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/agentbus/agentbus"
)

// key names what a node asks in an attempt at a turn (E36). Its number is twice that
// of the attempt among all that the node has made in the run, from 0: it follows
// from the turns alone, and nothing else that the node asks has it.
func (d *driver) key(now *intent, attempt int) string {
	return d.nodes[now.who] + ":" + strconv.Itoa(2*max(0, d.attempts(now.turn.Speaker)+attempt-1))
}

// attempts is how many a speaker has made in turns that are done.
func (d *driver) attempts(of agentbus.Speaker) (n int) {
	for i := range d.turns {
		if d.turns[i].Speaker == of {
			n += d.turns[i].Attempts
		}
	}
	return n
}

// suspends returns the events of a turn that waits (E36, E57).
func (d *driver) suspends(now *intent) []agentbus.Event {
	t := &now.turn
	key, asked := d.key(now, t.Attempts), d.asks(now)
	asked.Key = key
	s := agentbus.NodeSuspended{NodeID: d.nodes[now.who], InterruptID: key, Kind: asked.Kind, Key: key, Reason: string(t.Error.Ask.Kind)}
	if low := t.Error.Ask.Low; low != nil {
		s.Reason, s.AgentID, s.Threshold, s.Observed = asked.Kind, low.AgentID, &low.Threshold, &low.Observed
	}
	return []agentbus.Event{
		d.of(now, agentbus.EventWaitRequested, asked),
		d.of(now, agentbus.EventNodeSuspended, struct {
			agentbus.NodeSuspended
			Bus facts `json:"agentbus"`
		}{s, d.facts(now)}),
	}
}

// asks is what a turn asks in the words of the wire.
func (d *driver) asks(now *intent) agentbus.InterruptPayload {
	a := shown(now.turn.Error.Ask)
	var kind string
	var data any
	switch a.Kind {
	case agentbus.AskClarification:
		type question struct {
			ID       string `json:"id"`
			Question string `json:"question"`
		}
		kind, data = "clarification", map[string]any{"questions": []question{{"q1", cmp.Or(a.Prompt, a.Title, "what is the answer?")}}}
	case agentbus.AskAuth:
		kind, data = "custom", map[string]any{"customKind": "auth-required", "payload": map[string]string{"title": a.Title}}
	case agentbus.AskPolicy:
		sum := sha256.Sum256(a.Policy)
		kind, data = "approval", map[string]any{
			"artifactId": hex.EncodeToString(sum[:]), "artifactType": "policy:" + policyKind(a.Policy), "title": cmp.Or(a.Title, "a policy asks"),
			"actions": []string{"accept", "reject"}, "artifactData": a.Policy,
		}
	case agentbus.AskLowConfidence:
		kind, data = "low-confidence", a.Low
	case agentbus.AskApproval:
		kind, data = "approval", d.gate(now, &a)
	default:
		kind, data = "approval", d.gate(now, &a)
	}
	raw, _ := json.Marshal(data) // it came from JSON
	return agentbus.InterruptPayload{Kind: kind, Data: raw, TimeoutMS: max(0, a.Timeout.Milliseconds())}
}

// gate is what an approval asks.
func (d *driver) gate(now *intent, a *agentbus.Ask) any {
	gate := map[string]any{
		"artifactId": d.key(now, now.turn.Attempts), "artifactType": string(cmp.Or(a.Kind, agentbus.AskApproval)),
		"title": cmp.Or(a.Title, "an approval is asked for"), "actions": []string{"accept", "reject"},
	}
	if a.Prompt != "" {
		gate["artifactData"] = map[string]string{"prompt": a.Prompt}
	}
	return gate
}

// shown returns what may be shown of a, as it is read back.
func shown(a *agentbus.Ask) (s agentbus.Ask) {
	raw, _ := json.Marshal(a)   //nolint:errchkjson // a part that is no JSON is left out
	_ = json.Unmarshal(raw, &s) // it was written just now
	return s
}

// policyKind is the kind of a policy part, or of the first of several.
func policyKind(raw json.RawMessage) string {
	type part struct {
		Kind string `json:"kind"`
	}
	var one part
	var several []part
	if json.Unmarshal(raw, &several) == nil && len(several) > 0 {
		one = several[0]
	} else {
		_ = json.Unmarshal(raw, &one) // no kind then
	}
	return cmp.Or(one.Kind, "unknown")
}

// A verdict is what was decided of an interrupt, as the event of it tells.
type verdict struct {
	Interrupt agentbus.InterruptID `json:"interrupt"`
	agentbus.Resolution
}

// resumes returns the events of a turn that goes on from what was decided.
func (d *driver) resumes(now *intent, was *agentbus.Turn) []agentbus.Event {
	type told struct {
		agentbus.NodeResumed
		Bus struct {
			Resolved []verdict `json:"resolved"`
		} `json:"agentbus"`
	}
	var data told
	for _, i := range now.decided.resolved {
		r := agentbus.Resolution{Decision: i.Resolution.Decision, By: i.Resolution.By}
		if ask := askOf(was); ask == nil || ask.Kind != agentbus.AskAuth {
			r.Text = d.options.text(i.Resolution.Text)
		}
		data.Bus.Resolved = append(data.Bus.Resolved, verdict{i.ID, r})
	}
	first := data.Bus.Resolved[0]
	value := map[string]any{"action": "reject"}
	if first.Decision == agentbus.DecisionGranted {
		value["action"] = "accept"
	}
	if given := replaces(&first.Resolution); now.decided.kind == agentbus.AskLowConfidence && given != nil {
		value = map[string]any{"decision": given}
	}
	if ask := askOf(was); ask != nil && ask.Kind == agentbus.AskClarification {
		value = map[string]any{"answers": map[string]string{"q1": first.Text}}
	}
	data.NodeID, data.InterruptID = d.nodes[now.who], d.key(now, was.Attempts)
	data.ResumeValue, _ = json.Marshal(value) // strings
	return []agentbus.Event{
		d.of(now, agentbus.EventWaitResolved, data),
		d.of(now, agentbus.EventNodeResumed, data.NodeResumed),
	}
}
