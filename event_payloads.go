package agentbus

import (
	"encoding/json"
	"time"
)

// ReasonCredential is the reason of a node that is suspended because its run waits
// for the credential of its payer (R18, E57).
const ReasonCredential = "waiting-auth"

// The payloads of the events of a run and its nodes, as they are on the wire
// (E11). Ids of this run do not stand in them, but where a member says so: a
// fork has the payloads of its source (E9, E52).
type (
	// RunStarted opens a run; it is at position 0.
	RunStarted struct {
		WorkflowID   string          `json:"workflowId"`
		Inputs       json.RawMessage `json:"inputs,omitempty"` // an object
		Transport    string          `json:"transport,omitempty"`
		Configurable json.RawMessage `json:"configurable,omitempty"`
		Tags         []string        `json:"tags,omitempty"`
		Metadata     json.RawMessage `json:"metadata,omitempty"`
	}
	// RunCompleted ends a run that did what it was to do.
	RunCompleted struct {
		Outputs    json.RawMessage `json:"outputs,omitempty"` // an object
		DurationMS int64           `json:"durationMs"`
	}
	// RunFailed ends a run that did not.
	RunFailed struct {
		Error        EventError `json:"error"`
		FailedNodeID string     `json:"failedNodeId,omitempty"`
		DurationMS   int64      `json:"durationMs"`
	}
	// RunCancelled ends a run that was told to.
	RunCancelled struct {
		Reason     string `json:"reason,omitempty"`
		DurationMS int64  `json:"durationMs,omitempty"`
	}
	// RunPausedFor is the payload of run.paused, and of run.resumed.
	RunPausedFor struct {
		Reason string `json:"reason,omitempty"`
	}

	// NodeStarted begins an activation of a node.
	NodeStarted struct {
		NodeID    string    `json:"nodeId"`
		TypeID    string    `json:"typeId"`
		Attempt   int       `json:"attempt"` // from 0
		Agent     *AgentRef `json:"agent,omitempty"`
		TurnIndex *int      `json:"turnIndex,omitempty"` // of a turn of a conversation
	}
	// NodeCompleted ends one.
	NodeCompleted struct {
		NodeID  string          `json:"nodeId"`
		Outputs json.RawMessage `json:"outputs"` // an object
		Agent   *AgentRef       `json:"agent,omitempty"`
	}
	// NodeFailed ends one that failed.
	NodeFailed struct {
		NodeID   string     `json:"nodeId"`
		Error    EventError `json:"error"`
		Attempts int        `json:"attempts"` // from 1
	}
	// NodeRetried voids what the attempt before said.
	NodeRetried struct {
		NodeID    string     `json:"nodeId"`
		Attempt   int        `json:"attempt"` // the one that comes, from 1
		DelayMS   int64      `json:"delayMs"`
		LastError EventError `json:"lastError"`
	}
	// NodeCancelled ends one that nobody waits for.
	NodeCancelled struct {
		NodeID string `json:"nodeId"`
		Reason string `json:"reason,omitempty"`
	}
	// NodeSuspended says that a node waits for its interrupt; the last three are
	// those of low confidence (E34).
	NodeSuspended struct {
		NodeID      string   `json:"nodeId"`
		InterruptID string   `json:"interruptId"` // <nodeId>:<n>
		Kind        string   `json:"kind"`
		Key         string   `json:"key"`
		Reason      string   `json:"reason,omitempty"`
		AgentID     string   `json:"agentId,omitempty"`
		Threshold   *float64 `json:"threshold,omitempty"`
		Observed    *float64 `json:"observed,omitempty"`
	}
	// NodeResumed is the payload of node.resumed and interrupt.resolved.
	NodeResumed struct {
		NodeID      string          `json:"nodeId"`
		InterruptID string          `json:"interruptId"`
		ResumeValue json.RawMessage `json:"resumeValue"`
	}
	// NodeDispatched says that a node began a run of its own.
	NodeDispatched struct {
		ChildRunID      string `json:"childRunId"`
		ChildWorkflowID string `json:"childWorkflowId"`
		ChildStatus     string `json:"childStatus,omitempty"`
	}

	// EventError is an error in a payload.
	EventError struct {
		Code      string          `json:"code"`
		Message   string          `json:"message"`
		Details   json.RawMessage `json:"details,omitempty"` // an object
		Retryable bool            `json:"retryable,omitempty"`
	}
	// CapBreached says which bound a run met, before it fails (E35).
	CapBreached struct {
		Kind     string  `json:"kind"`
		Limit    float64 `json:"limit"`
		Observed float64 `json:"observed"`
		NodeID   string  `json:"nodeId,omitempty"`
	}
	// InterruptPayload is what an interrupt asks: the payload of
	// interrupt.requested, closed (E36).
	InterruptPayload struct {
		Kind         string          `json:"kind"`
		Key          string          `json:"key"` // <nodeId>:<n>
		Data         json.RawMessage `json:"data"`
		ResumeSchema json.RawMessage `json:"resumeSchema,omitempty"`
		TimeoutMS    int64           `json:"timeoutMs,omitempty"`
	}
	// ProviderUsage is what a turn took.
	ProviderUsage struct {
		Provider        string   `json:"provider"`
		Model           string   `json:"model"`
		InputTokens     int64    `json:"inputTokens"`
		OutputTokens    int64    `json:"outputTokens"`
		CostEstimateUSD *float64 `json:"costEstimateUsd,omitempty"`
		NodeID          string   `json:"nodeId,omitempty"`
	}
	// ChannelWritten is a write to a channel of the run.
	ChannelWritten struct {
		Channel   string          `json:"channel"`
		Value     json.RawMessage `json:"value"`
		Reducer   string          `json:"reducer"`
		NodeID    string          `json:"nodeId,omitempty"`
		WrittenAt time.Time       `json:"writtenAt"`
	}
	// VariableChanged is a new value of a variable of the run.
	VariableChanged struct {
		Name   string          `json:"name"`
		Next   json.RawMessage `json:"next"`
		NodeID string          `json:"nodeId,omitempty"`
	}
	// OutputChunk is a part of an answer while it is being said. It names the
	// run, which its schema demands (E9).
	OutputChunk struct {
		NodeID string      `json:"nodeId"`
		RunID  ExecutionID `json:"runId"`
		Chunk  string      `json:"chunk"`
		IsLast bool        `json:"isLast"`
	}
	// LogAppended is a line of the log of a run.
	LogAppended struct {
		Level   string          `json:"level"` // debug, info, warn, error
		Message string          `json:"message"`
		NodeID  string          `json:"nodeId,omitempty"`
		Fields  json.RawMessage `json:"fields,omitempty"`
	}
	// ReplayDiverged says where a replay parts from its source (E53).
	ReplayDiverged struct {
		SourceRunID     ExecutionID `json:"sourceRunId"`
		AtSequence      Position    `json:"atSequence"`
		OriginalEventID EventID     `json:"originalEventId,omitempty"`
		DivergenceKind  string      `json:"divergenceKind"` // output, missing, extra, type-mismatch
	}
)

// ReducerMessage is the reducer under which messages are written to a channel: a known message is
// no new one (E47).
const ReducerMessage = "vendor.agentbus.message"
