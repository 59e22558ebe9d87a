package openwop

import (
	"encoding/json"
	"time"

	"github.com/agentbus/agentbus"
)

// A Status is how a run stands (E8).
type Status string

// The states of a run on the wire.
const (
	StatusPending         Status = "pending"
	StatusRunning         Status = "running"
	StatusPaused          Status = "paused"
	StatusWaitingApproval Status = "waiting-approval"
	StatusWaitingInput    Status = "waiting-input"
	StatusWaitingExternal Status = "waiting-external"
	StatusCompleted       Status = "completed"
	StatusFailed          Status = "failed"
	StatusCancelling      Status = "cancelling"
	StatusCancelled       Status = "cancelled"
)

// Terminal reports whether nothing comes behind it.
func (s Status) Terminal() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusCancelled
}

// Waiting reports whether a run waits for somebody, or was paused.
func (s Status) Waiting() bool {
	return s == StatusPaused || s == StatusWaitingApproval || s == StatusWaitingInput || s == StatusWaitingExternal
}

// A Snapshot is a run as its events made it (E8). What does not apply is absent.
type Snapshot struct {
	RunID           agentbus.ExecutionID       `json:"runId"`
	WorkflowID      string                     `json:"workflowId"`
	Status          Status                     `json:"status"`
	CurrentNodeID   string                     `json:"currentNodeId,omitempty"`
	StartedAt       *time.Time                 `json:"startedAt,omitempty"`
	CompletedAt     *time.Time                 `json:"completedAt,omitempty"`
	Agent           *agentbus.AgentRef         `json:"agent,omitempty"`
	RunOrchestrator *agentbus.AgentRef         `json:"runOrchestrator,omitempty"`
	NodeStates      map[string]NodeState       `json:"nodeStates,omitempty"`
	Variables       map[string]json.RawMessage `json:"variables,omitempty"`
	Channels        map[string]json.RawMessage `json:"channels,omitempty"`
	Error           *SnapshotError             `json:"error,omitempty"`
	Tags            []string                   `json:"tags,omitempty"`
	Metadata        json.RawMessage            `json:"metadata,omitempty"`
	Configurable    json.RawMessage            `json:"configurable,omitempty"`
	Metrics         *Metrics                   `json:"metrics,omitempty"`
}

// A NodeState is how a node of a run stands.
type NodeState struct {
	Status  string `json:"status"`
	Started int    `json:"started"` // how often it was begun
}

// A SnapshotError is why a run failed.
type SnapshotError struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details,omitempty"`
}

// Metrics are what a run took.
type Metrics struct {
	Cost Cost `json:"openwopCost"`
}

// A Cost is what the models of a run took.
type Cost struct {
	USD    float64 `json:"usd,omitempty"`
	Tokens struct {
		Input  int64 `json:"input"`
		Output int64 `json:"output"`
	} `json:"tokens"`
	Model    string `json:"model,omitempty"`
	Provider string `json:"provider,omitempty"`
}
