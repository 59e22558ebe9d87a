package conversation

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

// A ruling is what the reply of a participant that decides says: a JSON object,
// the whole reply, which a fence may be around, or its last line, with a member decision, of a moderator next,
// and perhaps a confidence from 0 to 1 (E30).
type ruling struct {
	Decision   json.RawMessage
	Confidence *float64
	odd        bool // its confidence is none, and was dropped
	supervises bool // it is a moderator's

	text       string // the reply
	begin, end int    // of the object in it
}

// ruling reads the reply of a turn; nil: it decides nothing.
func (d *driver) ruling(who int, reply string) *ruling {
	m, led := d.plan.(Moderator)
	led = led && m.Decides == d.conversation.Participants[who].Name
	if !led && !d.conversation.Participants[who].Decides {
		return nil
	}
	whole := unfenced(reply)
	begin := strings.LastIndex(reply, whole) // an opening fence may name the same
	last := strings.TrimSpace(whole[strings.LastIndexByte(whole, '\n')+1:])
	for _, text := range []string{whole, last} {
		var says struct {
			Decision   json.RawMessage `json:"decision"`
			Next       string          `json:"next"`
			Confidence json.RawMessage `json:"confidence"`
		}
		if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &says) != nil {
			continue
		}
		r := &ruling{Decision: says.Decision, supervises: led, text: reply, begin: begin + strings.LastIndex(whole, text)}
		r.end = r.begin + len(text)
		if led {
			r.Decision = d.orchestrates(m, says.Next)
		}
		if len(r.Decision) == 0 {
			continue
		}
		r.Confidence, r.odd = confidence(says.Confidence)
		return r
	}
	return nil
}

// orchestrates is whom a moderator names, in the words of the wire; nil: nobody.
func (d *driver) orchestrates(m Moderator, next string) json.RawMessage {
	decision := agentbus.OrchestratorDecision{Kind: "terminate"}
	if slug := agentbus.Speaker(next).Slug(); slug != saysDone {
		i := slices.IndexFunc(m.Others, func(s agentbus.Speaker) bool { return s.Slug() == slug })
		if i < 0 {
			return nil
		}
		decision = agentbus.OrchestratorDecision{Kind: "next-worker", NextWorkerIDs: []string{d.nodes[d.index(m.Others[i])]}}
	}
	raw, _ := json.Marshal(decision) // strings
	return raw
}

// confidence reads a confidence; what is none is dropped.
func confidence(raw json.RawMessage) (c *float64, odd bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, false
	}
	var f float64
	if json.Unmarshal(raw, &f) != nil || math.IsNaN(f) || f < 0 || f > 1 {
		return nil, true
	}
	return &f, false
}

// low is what a ruling comes to that nobody is sure enough of; nil: it stands.
func (d *driver) low(now *intent, r *ruling) *agentbus.LowConfidence {
	threshold := agentbus.DefaultThreshold
	if d.options.Threshold != nil {
		threshold = *d.options.Threshold
	}
	if r == nil || r.Confidence == nil || *r.Confidence >= threshold {
		return nil
	}
	return &agentbus.LowConfidence{AgentID: d.refs[now.who].AgentID, Threshold: threshold, Observed: *r.Confidence, Decision: r.Decision}
}

// maxHeld bounds the reply that waits for its decision to be ratified, in bytes.
const maxHeld = 1 << 20

// escalates returns what lets a turn wait whose decision has a low confidence, or
// nil. A replay goes by what is recorded.
func (d *driver) escalates(now *intent) error {
	if d.options.retold != nil || d.options.NoEscalation || len(now.decided.resolved) > 0 && now.decided.kind == agentbus.AskLowConfidence {
		return nil
	}
	low := d.low(now, d.ruling(now.who, now.turn.Reply.Text))
	if low == nil {
		return nil
	}
	reply := now.turn.Reply
	reply.Usage.Cost = 0 // it is in the cost of the turn
	held, _ := json.Marshal(reply)
	if len(held) > maxHeld {
		return &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: "its decision has a low confidence, and more around it than is kept while it waits",
			Explain: &agentbus.Explain{Rule: "E31", Observed: len(held), Limit: maxHeld, Next: "have it answer with less"},
		}
	}
	return &agentbus.Error{
		Code: agentbus.CodeInputRequired, Message: "its decision has a low confidence",
		Ask: &agentbus.Ask{
			Kind: agentbus.AskLowConfidence, Title: "A decision of " + string(now.turn.Speaker) + " has a low confidence", Prompt: string(low.Decision),
			Choices: []string{"accept", "reject"}, Low: low, Resume: held,
		},
	}
}

// held returns the reply whose decision was ratified: nobody is asked again. A
// replay has it recorded.
func (n *decided) held() (r agentbus.Reply, ok bool) {
	if n.kind != agentbus.AskLowConfidence || !n.own || len(n.resolved) == 0 || n.resolved[0].Resolution.Decision != agentbus.DecisionGranted {
		return r, false
	}
	return r, json.Unmarshal(n.resolved[0].Ask.Resume, &r) == nil
}

// ratified is the held reply as it stands: without a confidence, so that nothing
// asks for it again, and with the decision that was given in its place (E32).
func (d *driver) ratified(now *intent, reply agentbus.Reply) agentbus.Reply {
	r := d.ruling(now.who, reply.Text)
	if r == nil {
		return reply
	}
	var says map[string]json.RawMessage
	_ = json.Unmarshal([]byte(r.text[r.begin:r.end]), &says) // it was read before
	delete(says, "confidence")
	if given := replaces(now.decided.resolved[0].Resolution); given != nil {
		if !r.supervises {
			says["decision"] = given
		} else if next := d.directed(given); next != "" {
			says["next"], _ = json.Marshal(next) // a string
		}
	}
	said, _ := json.Marshal(says) // it came from JSON
	reply.Text = r.text[:r.begin] + string(said) + r.text[r.end:]
	return reply
}

// replaces returns the decision that a resolution puts in the place of the held
// one; nil: the held one stands, whatever else was said with it.
func replaces(r *agentbus.Resolution) json.RawMessage {
	given := json.RawMessage(r.Text)
	if r.Decision != agentbus.DecisionGranted || !json.Valid(given) || strings.TrimSpace(r.Text) == "null" {
		return nil
	}
	return given
}

// directed is whom a decision of an orchestrator names, as a moderator does; "":
// nobody.
func (d *driver) directed(given json.RawMessage) string {
	var o agentbus.OrchestratorDecision
	_ = json.Unmarshal(given, &o) // none names nobody
	switch {
	case o.Kind == "terminate":
		return saysDone
	case o.Kind == "next-worker" && len(o.NextWorkerIDs) == 1:
		if at := slices.Index(d.nodes, o.NextWorkerIDs[0]); at >= 0 {
			return d.conversation.Participants[at].Name.Slug()
		}
	}
	return ""
}

// decides returns the events of what a turn decided (E30, E33). What a moderator
// decided is that of the run's orchestrator.
func (d *driver) decides(now *intent) (events []agentbus.Event) {
	r := d.ruling(now.who, now.turn.Reply.Text)
	if r == nil {
		return nil
	}
	agent := d.refs[now.who].AgentID
	if !r.supervises {
		events = append(events, d.of(now, agentbus.EventAgentDecided, agentbus.AgentDecided{AgentID: agent, Decision: r.Decision, Confidence: r.Confidence}))
	}
	if low := d.low(now, r); low != nil {
		events = append(events, d.of(now, agentbus.EventEscalationSuppressed, agentbus.EscalationSuppressed{
			Kind: "confidence-escalation-suppressed", AgentID: agent, Threshold: low.Threshold, Observed: low.Observed,
		}))
	}
	if r.odd {
		events = append(events, d.of(now, agentbus.EventLogAppended, agentbus.LogAppended{
			Level: "warn", Message: "a confidence that is not between 0 and 1 was dropped", NodeID: d.nodes[now.who],
		}))
	}
	return events
}

// holds returns the events of a decision that waits to be ratified: a moderator's
// is told by nothing else before (E31).
func (d *driver) holds(now *intent) []agentbus.Event {
	low := now.turn.Error.Ask.Low
	m, led := d.plan.(Moderator)
	if low == nil || led && m.Decides == now.turn.Speaker {
		return nil
	}
	return []agentbus.Event{d.of(now, agentbus.EventAgentDecided, agentbus.AgentDecided{AgentID: low.AgentID, Decision: low.Decision, Confidence: &low.Observed})}
}
