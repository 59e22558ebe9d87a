package openwop

import (
	"encoding/json"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// A mockAgent is the configuration of a mock agent (E72).
type mockAgent struct {
	AgentID       string          `json:"agentId"`
	MockReasoning json.RawMessage `json:"mockReasoning"`
	MockToolCalls []struct {
		ToolID     string          `json:"toolId"`
		Arguments  json.RawMessage `json:"arguments"`
		Result     json.RawMessage `json:"result"`
		DurationMS int64           `json:"durationMs"`
		Error      *struct {
			Error   string          `json:"error"`
			Message string          `json:"message"`
			Details json.RawMessage `json:"details"`
		} `json:"error"`
	} `json:"mockToolCalls"`
	MockHandoff *struct {
		ToAgentID string          `json:"toAgentId"`
		Reason    string          `json:"reason"`
		Context   json.RawMessage `json:"context"`
	} `json:"mockHandoff"`
	MockDecision *struct {
		Decision   json.RawMessage `json:"decision"`
		Confidence *float64        `json:"confidence"`
		Reasoning  string          `json:"reasoning"`
	} `json:"mockDecision"`
	MockConfidence *float64 `json:"mockConfidence"`
}

// A mockReasoning is what a mock agent thinks.
type mockReasoning struct {
	Summary      string   `json:"summary"`
	Trace        string   `json:"trace"`
	StreamChunks []string `json:"streamChunks"`
}

// mockAgentNode says what a mock agent is told to, in the order of E23.
func mockAgentNode(a *activation) (json.RawMessage, error) {
	var c mockAgent
	if err := a.config(&c); err != nil {
		return nil, err
	}
	agent := *a.agent
	if c.AgentID != "" {
		agent.AgentID = c.AgentID
	}
	a.reason(agent.AgentID, c.MockReasoning)
	if err := a.callTools(agent.AgentID, &c); err != nil {
		return nil, err
	}
	if h := c.MockHandoff; h != nil {
		a.emit(agentbus.EventAgentHandoff, nil, agentbus.NewHandoff(agent, agentbus.AgentRef{AgentID: h.ToAgentID}, h.Reason, h.Context))
	}
	return nil, a.decide(agent.AgentID, &c)
}

// reason says what the agent thinks, as verbose as the run wants it (E25).
func (a *activation) reason(agent string, raw json.RawMessage) {
	var r mockReasoning
	if json.Unmarshal(raw, &r) != nil {
		r = mockReasoning{}
		if string(raw) == "true" {
			r.Summary = "The mock agent thought."
		}
	}
	verbosity := a.opts.ReasoningVerbosity
	if verbosity == "" {
		verbosity = "summary"
	}
	if verbosity == "off" || r.Summary == "" && len(r.StreamChunks) == 0 {
		return
	}
	text := r.Summary
	if verbosity == "full" && r.Trace != "" {
		text = r.Trace
	}
	if len(r.StreamChunks) > 0 {
		text = a.stream(agent, verbosity, r.StreamChunks)
	} else if verbosity == "summary" {
		text = cutText(text, 4*reasoningTokens)
	}
	a.emit(agentbus.EventAgentReasoned, nil, agentbus.AgentReasoned{AgentID: agent, Reasoning: text, Verbosity: verbosity})
}

// stream says chunk by chunk what the agent thinks, without secrets that are
// split between them (E28), and returns what was said.
func (a *activation) stream(agent, verbosity string, chunks []string) string {
	var said strings.Builder
	write, rest := a.redact.Splitter()
	for i, chunk := range chunks {
		text := write(chunk)
		if i == len(chunks)-1 {
			text += rest()
		}
		if verbosity == "summary" {
			text = cutText(text, max(4*reasoningTokens-said.Len(), 0))
		}
		said.WriteString(text)
		a.emit(agentbus.EventAgentReasoningDelta, nil, agentbus.AgentReasoningDelta{AgentID: agent, Delta: text, Sequence: i, Verbosity: verbosity})
	}
	return said.String()
}

// cutText returns at most n characters of s.
func cutText(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// callTools says the calls of tools, each with what came of it (E24).
func (a *activation) callTools(agent string, c *mockAgent) error {
	for i := range c.MockToolCalls {
		t := &c.MockToolCalls[i]
		if (t.Error == nil) == (t.Result == nil) {
			return fail("invalid_config", "a tool call of node %s needs a result or an error", a.node.ID)
		}
		call := agentbus.NewToolCalled(agent, t.ToolID, "call_"+a.node.ID+"_"+itoa(i), t.Arguments)
		call.ArgsHash, call.Transport = rawjson.CanonicalHash(a.redact.JSON(t.Arguments)), "native"
		called := a.emit(agentbus.EventAgentToolCalled, nil, call)
		var failed *agentbus.EventError
		if t.Error != nil {
			failed = &agentbus.EventError{Code: t.Error.Error, Message: t.Error.Message, Details: t.Error.Details}
		}
		a.emit(agentbus.EventAgentToolReturned, &called, agentbus.NewToolReturned(&call, t.Result, failed, t.DurationMS))
	}
	return nil
}

// decide says the decision of the agent, and asks whether it stands when its
// confidence is low (E30 to E32).
func (a *activation) decide(agent string, c *mockAgent) error {
	if c.MockDecision == nil && c.MockConfidence == nil {
		return nil
	}
	d := agentbus.AgentDecided{AgentID: agent, Decision: json.RawMessage("{}"), Confidence: c.MockConfidence}
	if m := c.MockDecision; m != nil {
		d.Decision, d.Reasoning = m.Decision, m.Reasoning
		if m.Confidence != nil {
			d.Confidence = m.Confidence
		}
	}
	if d.Confidence != nil && (*d.Confidence < 0 || *d.Confidence > 1) {
		a.log0("a confidence that is not between 0 and 1 was dropped")
		d.Confidence = nil
	}
	a.emit(agentbus.EventAgentDecided, nil, d)
	low, err := a.escalate(agent, d.Confidence, d.Decision)
	if low == nil || err != nil {
		return err
	}
	d.Decision, d.Confidence = low, nil
	a.emit(agentbus.EventAgentDecided, nil, d)
	return nil
}

// log0 notes something in the log of the run.
func (a *activation) log0(message string) {
	a.emit(agentbus.EventLogAppended, nil, agentbus.LogAppended{Level: "warn", Message: message, NodeID: a.node.ID})
}

// escalate asks whether a decision of low confidence is to stand, and returns the
// one that is ratified; nil: its confidence is not low, or nobody is to be asked
// (E30, E33).
func (a *activation) escalate(agent string, confidence *float64, held json.RawMessage) (json.RawMessage, error) {
	threshold := a.opts.threshold()
	if confidence == nil || *confidence >= threshold {
		return nil, nil
	}
	if a.cfg.NoEscalation {
		a.emit(agentbus.EventEscalationSuppressed, nil, agentbus.EscalationSuppressed{
			Kind: "confidence-escalation-suppressed", AgentID: agent, Threshold: threshold, Observed: *confidence,
		})
		return nil, nil
	}
	low := &agentbus.LowConfidence{AgentID: agent, Threshold: threshold, Observed: *confidence, Decision: held}
	answer, err := a.wait(question{
		kind: "low-confidence", reason: "low-confidence", data: low, low: low,
		ask: agentbus.Ask{Kind: agentbus.AskLowConfidence, Title: "A decision of " + agent + " has a low confidence"},
	})
	if err != nil {
		return nil, err
	}
	return ratified(answer, held)
}

// ratified is the decision that an answer lets stand (E32).
func ratified(answer, held json.RawMessage) (json.RawMessage, error) {
	var got struct {
		Decision json.RawMessage `json:"decision"`
		Action   string          `json:"action"`
	}
	_ = json.Unmarshal(answer, &got)
	switch {
	case got.Action == "reject":
		return nil, fail("decision_rejected", "the decision was rejected")
	case !absent(got.Decision):
		return got.Decision, nil
	case got.Action == "accept":
		return held, nil
	}
	return nil, fail("decision_rejected", "the answer holds no decision")
}
