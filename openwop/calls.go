package openwop

import (
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
)

// A Calling is what is going on in a run at this process: the calls that its payer
// pays for, in the order in which they began, and what the run may cost.
type Calling struct {
	Calls  []LiveCall      `json:"calls"`
	Budget agentbus.Micros `json:"budget_micros,omitempty"` // 0: any amount
}

// A LiveCall is one that is being made.
type LiveCall struct {
	Turn   agentbus.TurnID `json:"turnId"`
	Parent agentbus.TurnID `json:"parentTurnId,omitempty"`
	Agent  string          `json:"agent"`
	Depth  int             `json:"depth"`
	Began  time.Time       `json:"began"`
}

// calls serves GET /v1/runs/{id}/vendor.agentbus.calls, which the standard does not
// know: for those who draw a run while it goes on. Events tell of a nested call, and
// of those made at once, when they are over only.
func (h *Host) calls(w http.ResponseWriter, _ *http.Request, _ agentbus.Principal, e *agentbus.Execution) error {
	c := Calling{Calls: []LiveCall{}}
	if h.cfg.Calling != nil {
		calls, budget := h.cfg.Calling(*e)
		c.Budget = budget
		for i := range calls {
			if k := &calls[i]; k.Payer == e.Payer && k.Run == e.Run { // who pays for others is theirs to know
				c.Calls = append(c.Calls, LiveCall{Turn: k.TurnKey.ID, Parent: k.Parent, Agent: k.Agent, Depth: k.Depth, Began: k.Began.UTC()})
			}
		}
	}
	return answer(w, http.StatusOK, c)
}
