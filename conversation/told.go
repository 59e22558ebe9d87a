package conversation

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// facts are what the journal has of a turn's result beyond what the event wire
// has words for: the member agentbus of the event that ends its node. A replay
// goes by them (R23).
type facts struct {
	Index    int             `json:"index"`
	Agent    string          `json:"agent"`
	Auth     AuthMode        `json:"auth,omitempty"` // when it is not the origin's
	Depth    int             `json:"depth"`
	Attempts int             `json:"attempts"`
	Cost     agentbus.Micros `json:"cost_micros"`
	Usage    *agentbus.Usage `json:"usage,omitempty"`
	Answer   string          `json:"answer,omitempty"` // its digest, see answered
	Replayed bool            `json:"replayed,omitempty"`
	Code     agentbus.Code   `json:"code,omitempty"` // of a turn that waits; a failed one has it as its error
	Message  string          `json:"message,omitempty"`
	Ask      *agentbus.Ask   `json:"ask,omitempty"`
}

func (d *driver) facts(now *intent) facts {
	t := &now.turn
	f := facts{Index: t.Index, Agent: t.Agent, Depth: now.lineage.Depth, Attempts: t.Attempts, Cost: t.Cost, Replayed: t.Reply.Replayed}
	if now.owned {
		f.Auth = AuthAgentOwned
	}
	if t.Error == nil {
		f.Usage, f.Answer = &t.Reply.Usage, answered(t).String()
		return f
	}
	if t.State == agentbus.TurnWaiting {
		f.Code, f.Message, f.Ask = t.Error.Code, t.Error.Message, t.Error.Ask
	}
	return f
}

// told returns the events of a turn's result (E56).
func (d *driver) told(now *intent) (events []agentbus.Event) {
	t := &now.turn
	low := t.State == agentbus.TurnWaiting && askOf(t) != nil && askOf(t).Low != nil
	for _, e := range now.tale.end(t.State == agentbus.TurnDone || low) {
		e.Hold = now.hold
		events = append(events, e)
	}
	switch t.State {
	case agentbus.TurnDone:
		return append(events, d.answers(now)...)
	case agentbus.TurnFailed:
		return append(append(events, d.completes(now, "failed")...), d.of(now, agentbus.EventNodeFailed, struct {
			agentbus.NodeFailed
			Bus facts `json:"agentbus"`
		}{agentbus.NodeFailed{NodeID: d.nodes[now.who], Error: wireError(t.Error), Attempts: max(1, t.Attempts)}, d.facts(now)}))
	case agentbus.TurnCancelled:
		return append(append(events, d.completes(now, "failed")...), d.cancelled(now, "its join was met without it", new(d.facts(now))))
	case agentbus.TurnWaiting:
		if low {
			events = append(append(events, d.holds(now)...), d.completes(now, "escalated")...)
			return append(events, d.suspends(now)...)
		}
		return append(append(events, d.completes(now, "completed")...), d.suspends(now)...)
	case agentbus.TurnPending:
	}
	return events
}

// cancelled ends a node that nobody waits for; f is nil of a turn that stays
// pending.
func (d *driver) cancelled(now *intent, reason string, f *facts) agentbus.Event {
	return d.of(now, agentbus.EventNodeCancelled, struct {
		agentbus.NodeCancelled
		Bus *facts `json:"agentbus,omitempty"`
	}{agentbus.NodeCancelled{NodeID: d.nodes[now.who], Reason: reason}, f})
}

// answers returns the events of an answer, in the order of E23.
func (d *driver) answers(now *intent) []agentbus.Event {
	t, r, node := &now.turn, &now.turn.Reply, d.nodes[now.who]
	var events []agentbus.Event
	if r.Reasoning != "" && d.options.Reasoning != ReasoningOff {
		events = append(events, d.of(now, agentbus.EventAgentReasoned, agentbus.AgentReasoned{
			AgentID: d.refs[now.who].AgentID, Reasoning: d.options.summary(r.Reasoning), Verbosity: d.options.verbosity(),
		}))
	}
	events = append(events, d.tools(now)...)
	decision, outcome := d.directs(now), "completed"
	for _, e := range decision {
		if e.Type == agentbus.EventAgentHandoff {
			events, outcome = append(events, e), "handed-off"
		}
	}
	events = append(append(events, d.decides(now)...), d.completes(now, outcome)...)
	for _, e := range decision {
		if e.Type != agentbus.EventAgentHandoff {
			events = append(events, e)
		}
	}
	usage := agentbus.ProviderUsage{
		Provider: storableText(cmp.Or(t.Agent, node)), Model: cmp.Or(r.Model, "unknown"), NodeID: node,
		InputTokens: max(0, r.Usage.InputTokens), OutputTokens: max(0, r.Usage.OutputTokens),
	}
	if r.Usage.Cost > 0 {
		usage.CostEstimateUSD = new(dollars(r.Usage.Cost))
	}
	message := d.message(now.who, t)
	value, _ := json.Marshal(message) // strings and numbers
	outputs, _ := json.Marshal(map[string]string{"text": r.Text})
	return append(events,
		d.of(now, agentbus.EventProviderUsage, usage),
		d.of(now, agentbus.EventConversationExchanged, agentbus.ConversationExchanged{ConversationID: d.talk, TurnIndex: message.TurnIndex, Turn: message}),
		d.of(now, agentbus.EventChannelWritten, agentbus.ChannelWritten{
			Channel: channelMessages, Value: value, Reducer: agentbus.ReducerMessage, NodeID: node, WrittenAt: t.Ended.UTC(),
		}),
		d.of(now, agentbus.EventNodeCompleted, struct {
			agentbus.NodeCompleted
			Bus facts `json:"agentbus"`
		}{agentbus.NodeCompleted{NodeID: node, Outputs: outputs, Agent: &d.refs[now.who]}, d.facts(now)}),
	)
}

// tools returns a pair of events for each tool that was asked for. The bus runs
// none: of an agent whose tools it knows, those that are not on its list are
// forbidden, and what came of the others nobody tells (E27).
func (d *driver) tools(now *intent) (events []agentbus.Event) {
	node := d.nodes[now.who]
	for i := range now.turn.Reply.ToolCalls {
		c := &now.turn.Reply.ToolCalls[i]
		inputs := json.RawMessage(c.Arguments)
		if !json.Valid(inputs) {
			inputs, _ = json.Marshal(c.Arguments)
		}
		called := agentbus.NewToolCalled(d.refs[now.who].AgentID, node+":"+cmp.Or(c.Name, "unnamed"), cmp.Or(c.ID, "call_"+node+"_"+strconv.Itoa(i)), inputs)
		called.ArgsHash = rawjson.CanonicalHash(inputs)
		asked := d.of(now, agentbus.EventAgentToolCalled, called)
		result := agentbus.NewToolReturned(&called, nil, &agentbus.EventError{
			Code: "tool_result_unknown", Message: "the bus runs no tools, and the agent did not tell what came of it",
		}, 0)
		if allowed := d.conversation.Participants[now.who].Tools; allowed != nil {
			if _, denied := agentbus.FilterTools(agentbus.HarnessRole{Agent: called.AgentID, Allowed: allowed}, []string{called.ToolName}); len(denied) > 0 {
				why := &agentbus.EventError{Code: "forbidden", Message: "the agent may not use this tool"}
				result = agentbus.NewToolDenied(&called, why.Code, why)
			}
		}
		returned := d.of(now, agentbus.EventAgentToolReturned, result)
		returned.CauseBack = 1
		events = append(events, asked, returned)
	}
	return events
}

// directs returns what a moderator decided with its turn (E58), and whom a mention
// handed the word to (E55).
func (d *driver) directs(now *intent) []agentbus.Event {
	if now.heir != nil {
		return []agentbus.Event{d.of(now, agentbus.EventAgentHandoff, agentbus.NewHandoff(d.refs[now.who], d.refs[now.heir.who], "mentioned", nil))}
	}
	m, ok := d.plan.(Moderator)
	if !ok || now.turn.Speaker != m.Decides {
		return nil
	}
	if h, err := d.over(); h != nil || err != nil { // an error is told with the halt
		return nil
	}
	step, err := m.Next(d.turns)
	if err != nil {
		return nil
	}
	decided := agentbus.OrchestratorDecided{AgentID: d.refs[now.who].AgentID, Decision: agentbus.OrchestratorDecision{Kind: "terminate", Reason: step.Reason}}
	if step.Done {
		return []agentbus.Event{d.of(now, agentbus.EventOrchestratorDecided, decided)}
	}
	to := d.index(step.Speaker)
	if to < 0 {
		return nil
	}
	decided.Decision = agentbus.OrchestratorDecision{Kind: "next-worker", NextWorkerIDs: []string{d.nodes[to]}}
	events := []agentbus.Event{d.of(now, agentbus.EventOrchestratorDecided, decided)}
	if slices.Contains(namedIn(now.turn.Reply.Text), step.Speaker.Slug()) {
		events = append(events, d.of(now, agentbus.EventAgentHandoff, agentbus.NewHandoff(d.refs[now.who], d.refs[to], "named as the next speaker", nil)))
	}
	return events
}

// wireError is e in a payload, where a message is never empty.
func wireError(e *agentbus.Error) agentbus.EventError {
	if rejected(e) {
		return agentbus.EventError{Code: "decision_rejected", Message: e.Message}
	}
	return agentbus.EventError{Code: cmp.Or(string(e.Code), string(agentbus.CodeInternal)), Message: cmp.Or(e.Message, string(e.Code), "no reason was given")}
}

func dollars(m agentbus.Micros) float64 { return float64(m) / 1e6 }
