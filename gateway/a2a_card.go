package gateway

import (
	"net/http"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// serveCard answers with the card of an agent (A3, A10). Cards are public: who
// asks need not say who it is.
func (g *Gateway) serveCard(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	if x.envelope == nil {
		x.envelope = &envelope{name: g.cfg.A2A.DefaultAgent, binding: a2a.REST, card: true}
	}
	err := g.findA2A(x)
	if x.envelope.name == "" {
		err = &agentbus.Error{
			Code: agentbus.CodeAgentNotFound, Message: "this bus has no agent whose card stands here",
			Explain: &agentbus.Explain{Rule: "A3", Next: "GET " + a2aPrefix + "NAME" + cardPath + ", or ask the operator to set a2a.default_agent"},
		}
	}
	if err != nil {
		x.refuse(w, err)
		return
	}
	x.envelope.request = &a2a.Request{Agent: x.target.Name, Base: g.mount(r, x.target)}
	if x.target.A2A == nil {
		g.face(w, r, x)
		return
	}
}
