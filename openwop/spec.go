package openwop

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/agentbus/agentbus"
)

// A spec is what is stored of a run of a workflow beside its events: how it was
// asked for.
type spec struct {
	Workflow string `json:"openwop_workflow"`
	Asked    asked  `json:"asked"`
	Fork     *fork  `json:"fork,omitempty"`
}

// asked is what a caller asked for, without secrets.
type asked struct {
	Inputs       json.RawMessage      `json:"inputs,omitempty"`
	Configurable json.RawMessage      `json:"configurable,omitempty"`
	Tags         []string             `json:"tags,omitempty"`
	Metadata     json.RawMessage      `json:"metadata,omitempty"`
	Parent       agentbus.ExecutionID `json:"parent,omitempty"` // the run whose worker it is
}

// A fork is where a run parts from another.
type fork struct {
	Source agentbus.ExecutionID `json:"source"`
	Origin agentbus.ExecutionID `json:"origin"` // the first of the line
	From   agentbus.Position    `json:"from"`
	Replay bool                 `json:"replay,omitempty"` // else it branches
	Told   *told                `json:"told,omitempty"`   // of a replay of a conversation
}

// told says that a replay tells again what a conversation told: that was driven
// again over its record, and is not driven once more.
type told struct {
	Diverged *Divergence `json:"diverged,omitempty"`
}

// retells reports whether the run tells a conversation again.
func (s *spec) retells() bool { return s.Fork != nil && s.Fork.Told != nil }

// Drives reports whether e is a run of a workflow: one that a Host drives, and no
// conversation.
func Drives(e *agentbus.Execution) bool {
	_, ok := readSpec(e)
	return ok
}

func readSpec(e *agentbus.Execution) (s spec, ok bool) {
	err := json.Unmarshal(e.Spec, &s)
	return s, err == nil && s.Workflow != ""
}

// configurable are the options of a run that the host knows (E7).
type configurable struct {
	RecursionLimit      *int     `json:"recursionLimit"`
	RunTimeoutMS        *int64   `json:"runTimeoutMs"`
	EscalationThreshold *float64 `json:"escalationThreshold"`
	ReasoningVerbosity  string   `json:"reasoningVerbosity"`
	OnHalt              string   `json:"onHalt"`

	// What conversations act on alone.
	Model       *string           `json:"model"`
	Temperature *float64          `json:"temperature"`
	MaxTokens   *int              `json:"maxTokens"`
	Prompts     map[string]string `json:"promptOverrides"`
	Budget      *budget           `json:"budget"`
}

// A budget is what a run may spend (E35).
type budget struct {
	MaxTokens  *int64   `json:"maxTokens"`
	MaxCostUSD *float64 `json:"maxCostUsd"`
}

// The bounds of a run, as discovery tells them (E4).
const (
	maxNodeExecutions = 1000
	maxRunDurationMS  = 3_600_000
	reasoningTokens   = 512
	confidenceFloor   = 0.5
)

func (s *spec) options() (c configurable) {
	_ = json.Unmarshal(s.Asked.Configurable, &c) // it was checked when the run was asked for
	return c
}

func (c *configurable) recursionLimit() int {
	if c.RecursionLimit == nil {
		return maxNodeExecutions
	}
	return min(*c.RecursionLimit, maxNodeExecutions)
}

func (c *configurable) timeoutMS() int64 {
	if c.RunTimeoutMS == nil || *c.RunTimeoutMS > maxRunDurationMS {
		return maxRunDurationMS
	}
	return *c.RunTimeoutMS
}

// overrides are what a conversation has in place of what is configured.
func (c *configurable) overrides() Overrides {
	o := Overrides{RecursionLimit: c.recursionLimit(), Temperature: c.Temperature}
	if c.Model != nil {
		o.Model = *c.Model
	}
	if c.MaxTokens != nil {
		o.MaxTokens = *c.MaxTokens
	}
	if c.Budget != nil && c.Budget.MaxTokens != nil {
		o.TokenBudget = *c.Budget.MaxTokens
	}
	for name, text := range c.Prompts {
		if o.Prompts == nil {
			o.Prompts = map[string]string{}
		}
		o.Prompts[strings.TrimPrefix(name, "prompt:")] = text
	}
	return o
}

// cost is what a conversation may cost; nil: as it is configured.
func (c *configurable) cost() *agentbus.Micros {
	if c.Budget == nil || c.Budget.MaxCostUSD == nil {
		return nil
	}
	return new(agentbus.Micros(math.Round(*c.Budget.MaxCostUSD * 1e6)))
}

func (c *configurable) threshold() float64 {
	if c.EscalationThreshold == nil {
		return agentbus.DefaultThreshold
	}
	return *c.EscalationThreshold
}
