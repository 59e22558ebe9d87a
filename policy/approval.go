package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// Approval has a human approve each turn of a participant before that one is
// called (R22): until then, the turn ends with an [agentbus.Ask]. It stands
// outside of every other policy, and what the participant asks itself passes it.
type Approval struct {
	Who     string        // whose turns they are, for people
	Timeout time.Duration // until it counts as denied; 0: the default of the run
}

// approval is what an Approval knows its own question by.
var approval = json.RawMessage(`"approval"`)

// maxShown is how much of what a participant would be told is shown, in bytes.
const maxShown = 4 << 10

// Wrap is the [agentbus.Middleware].
func (a Approval) Wrap(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		r := c.Resolution
		switch {
		case r != nil && !bytes.Equal(r.Resume, approval):
			return b.Call(ctx, c) // an answer to what was asked behind us
		case r != nil && r.Decision == agentbus.DecisionGranted:
			approved := *c
			approved.Resolution = nil
			return b.Call(ctx, &approved)
		}
		return func(yield func(agentbus.Chunk, error) bool) { yield(agentbus.Chunk{}, a.ask(c)) }
	})
}

func (a Approval) ask(c *agentbus.Call) error {
	shown := ""
	if n := len(c.Messages); n > 0 {
		if shown = c.Messages[n-1].Content; len(shown) > maxShown {
			shown = strings.ToValidUTF8(shown[:maxShown], "") + "…"
		}
	}
	return &agentbus.Error{
		Code: agentbus.CodeInputRequired, Message: "the turn of " + a.Who + " waits for an approval",
		Explain: &agentbus.Explain{Rule: "R22", Next: "approve or deny it"},
		Ask:     &agentbus.Ask{Kind: agentbus.AskApproval, Title: "may " + a.Who + " take its turn?", Prompt: shown, Timeout: a.Timeout, Resume: approval},
	}
}
