package agentbus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
)

// The payloads of what agents do (E22). ToolCalled, ToolReturned and Handoff have
// some members twice, under the names of the schema and of RFC 0002 with equal
// values: make them with [NewToolCalled], [NewToolReturned] and [NewHandoff]
// (E1).
type (
	// AgentReasoned is what an agent thought, or a summary of it.
	AgentReasoned struct {
		AgentID   string `json:"agentId"`
		Reasoning string `json:"reasoning"`
		Verbosity string `json:"verbosity,omitempty"` // summary, full
	}
	// AgentReasoningDelta is a part of it while it is being thought.
	AgentReasoningDelta struct {
		AgentID   string `json:"agentId"`
		Delta     string `json:"delta"`
		Sequence  int    `json:"sequence"` // from 0 in each block
		Verbosity string `json:"verbosity,omitempty"`
	}
	// AgentToolCalled is a call of a tool.
	AgentToolCalled struct {
		AgentID   string          `json:"agentId"`
		ToolName  string          `json:"toolName"` // <scope>:<tool-id>
		CallID    string          `json:"callId"`
		Inputs    json.RawMessage `json:"inputs,omitempty"`
		ArgsHash  string          `json:"argsHash,omitempty"` // SHA-256 of the canonical inputs, redacted
		Principal string          `json:"principal,omitempty"`
		Transport string          `json:"transport,omitempty"` // mcp, http, native
		ToolID    string          `json:"toolId"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
	}
	// AgentToolReturned is what came of it: an outcome or an error.
	AgentToolReturned struct {
		AgentID    string          `json:"agentId"`
		ToolName   string          `json:"toolName"`
		CallID     string          `json:"callId"`
		Outcome    json.RawMessage `json:"outcome,omitempty"`
		Error      *EventError     `json:"error,omitempty"`
		Status     string          `json:"status,omitempty"`     // ok, error, forbidden, rate_limited
		DurationMS *int64          `json:"durationMs,omitempty"` // nil: the tool was never called
		ToolID     string          `json:"toolId"`
		Result     json.RawMessage `json:"result,omitempty"`
	}
	// AgentHandoff hands the work to another agent.
	AgentHandoff struct {
		FromAgentID string          `json:"fromAgentId"`
		ToAgentID   string          `json:"toAgentId"`
		Reason      string          `json:"reason,omitempty"`
		Context     json.RawMessage `json:"context,omitempty"`
		From        AgentRef        `json:"from"`
		To          AgentRef        `json:"to"`
	}
	// AgentDecided is a decision of an agent.
	AgentDecided struct {
		AgentID    string          `json:"agentId"`
		Decision   json.RawMessage `json:"decision"`
		Confidence *float64        `json:"confidence,omitempty"` // 0 to 1
		Reasoning  string          `json:"reasoning,omitempty"`
	}
	// InvocationStarted and InvocationCompleted enclose what an agent did live.
	// They hold nothing of what was said (E26).
	InvocationStarted struct {
		InvocationID     string     `json:"invocationId"`
		AgentID          string     `json:"agentId"`
		Source           string     `json:"source"` // workflow-node, run-api, chat-mention
		ModelClass       ModelClass `json:"modelClass,omitempty"`
		ResolvedModel    string     `json:"resolvedModel,omitempty"`
		ResolvedProvider string     `json:"resolvedProvider,omitempty"`
		ToolSurfaceCount int        `json:"toolSurfaceCount"`
	}
	// InvocationCompleted is the end of an invocation.
	InvocationCompleted struct {
		InvocationID    string   `json:"invocationId"`
		AgentID         string   `json:"agentId"`
		Outcome         string   `json:"outcome"` // completed, handed-off, escalated, refused, failed
		SchemaValidated *bool    `json:"schemaValidated,omitempty"`
		Confidence      *float64 `json:"confidence,omitempty"`
	}
	// EscalationSuppressed says that a decision stands although its confidence is
	// low (E33).
	EscalationSuppressed struct {
		Kind      string  `json:"kind"`
		AgentID   string  `json:"agentId"`
		Threshold float64 `json:"threshold"`
		Observed  float64 `json:"observed"`
	}
)

// NewToolCalled returns a call of a tool under both families of names (E1).
func NewToolCalled(agent, tool, call string, inputs json.RawMessage) AgentToolCalled {
	return AgentToolCalled{AgentID: agent, ToolName: tool, CallID: call, Inputs: inputs, ToolID: tool, Arguments: inputs}
}

// NewToolReturned returns what came of c, which was called: failed is nil where
// outcome is given.
func NewToolReturned(c *AgentToolCalled, outcome json.RawMessage, failed *EventError, durationMS int64) AgentToolReturned {
	status := "ok"
	if failed != nil {
		status, outcome = "error", nil
	}
	return AgentToolReturned{
		AgentID: c.AgentID, ToolName: c.ToolName, CallID: c.CallID, Outcome: outcome, Error: failed, Status: status,
		DurationMS: &durationMS, ToolID: c.ToolName, Result: outcome,
	}
}

// NewToolDenied returns that c was never called, and why: status is forbidden or
// rate_limited. It took no time, and has none.
func NewToolDenied(c *AgentToolCalled, status string, why *EventError) AgentToolReturned {
	r := NewToolReturned(c, nil, why, 0)
	r.Status, r.DurationMS = status, nil
	return r
}

// NewHandoff returns a hand-over under both families of names (E1).
func NewHandoff(from, to AgentRef, reason string, context json.RawMessage) AgentHandoff {
	return AgentHandoff{FromAgentID: from.AgentID, ToAgentID: to.AgentID, Reason: reason, Context: context, From: from, To: to}
}

// TurnRoleAgent is the role of an agent's turn of a conversation; those of the
// others are [RoleUser] and [RoleSystem] (E44).
const TurnRoleAgent = "agent"

// The payloads of conversations: closed (E46).
type (
	// ConversationTurn is one message of a conversation (E44).
	ConversationTurn struct {
		MessageID string `json:"messageId"` // <conversationId>:<turnIndex>:<role>
		From      string `json:"from"`      // an agent id, or user
		To        string `json:"to,omitempty"`
		GroupID   string `json:"groupId,omitempty"`
		Content   any    `json:"content"`
		TS        int64  `json:"ts"` // milliseconds since 1970
		Role      string `json:"role"`
		TurnIndex int    `json:"turnIndex"`
		SpeakerID string `json:"speakerId,omitempty"` // of an agent's turn: required
	}
	// ConversationOpened begins a conversation with its turn 0.
	ConversationOpened struct {
		ConversationID string           `json:"conversationId"`
		InitialTurn    ConversationTurn `json:"initialTurn"`
		AgentID        string           `json:"agentId,omitempty"`
		Participants   []AgentRef       `json:"participants,omitempty"`
		Capabilities   []string         `json:"capabilities,omitempty"`
	}
	// ConversationExchanged is one more turn, from index 1 on.
	ConversationExchanged struct {
		ConversationID string           `json:"conversationId"`
		TurnIndex      int              `json:"turnIndex"`
		Turn           ConversationTurn `json:"turn"`
	}
	// ConversationClosed ends it: nothing is exchanged behind it.
	ConversationClosed struct {
		ConversationID string           `json:"conversationId"`
		TurnIndex      int              `json:"turnIndex"`
		FinalTurn      ConversationTurn `json:"finalTurn"`
		Outcome        any              `json:"outcome,omitempty"`
	}

	// OrchestratorDecision is what a supervisor decided (E40).
	OrchestratorDecision struct {
		Kind          string   `json:"kind"` // next-worker, ask-user, terminate
		NextWorkerIDs []string `json:"nextWorkerIds,omitempty"`
		Prompt        string   `json:"prompt,omitempty"`
		Reason        string   `json:"reason,omitempty"`
		Confidence    *float64 `json:"confidence,omitempty"`
	}
	// OrchestratorDecided is the payload that carries it, before its effect.
	OrchestratorDecided struct {
		AgentID  string               `json:"agentId"` // the same in all of a run
		Decision OrchestratorDecision `json:"decision"`
	}
	// WorkflowChain is a step of handing work to a child run (E42). The names of
	// the two runs are part of its schema.
	WorkflowChain struct {
		Phase         string      `json:"phase"`
		WorkerID      string      `json:"workerId"`
		ParentRunID   ExecutionID `json:"parentRunId"`
		ChildRunID    ExecutionID `json:"childRunId,omitempty"`
		HarvestedKeys []string    `json:"harvestedKeys,omitempty"`
		Error         *EventError `json:"error,omitempty"`
	}
	// ChainEscalated says that a dispatch asks first (E43).
	ChainEscalated struct {
		Confidence     float64     `json:"confidence"`
		Floor          float64     `json:"floor"`
		EscalationKind string      `json:"escalationKind"`
		ParentRunID    ExecutionID `json:"parentRunId"`
		WorkerID       string      `json:"workerId,omitempty"`
	}
)

// MessageID returns the id of a turn of a conversation: the same in every fork
// (E44).
func MessageID(conversation string, turn int, role string) string {
	return conversation + ":" + strconv.Itoa(turn) + ":" + role
}

// ConversationID returns the id of the n-th conversation of a node. origin is the
// first run of a line of forks, so that forks agree on it (E45).
func ConversationID(origin ExecutionID, node string, n int) string {
	sum := sha256.Sum256([]byte(string(origin) + "\x00" + node + "\x00" + strconv.Itoa(n)))
	return "conv_" + hex.EncodeToString(sum[:8])
}
