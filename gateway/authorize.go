package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// authorize decides what this caller may do (G6): which agents it may call and
// whether it may name runs. A run that was stopped serves nobody (G14), and a
// credential that may not be sent to the agent ends the call here (P24).
func (g *Gateway) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		x.noteUser(r.Header)
		err := g.permit(x)
		if err == nil {
			err = g.entitled(r.Context(), x)
		}
		if err != nil {
			x.refuse(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Gateway) permit(x *exchange) error {
	switch grants, t := x.caller.Grants, x.target; {
	case !x.mayCall(t.Name):
		return g.notCallable(x, x.asked())
	case grants != nil && grants.NoRunIDs && x.named && !x.within() && (x.inProcess == nil || !x.inProcess.Minted):
		return &agentbus.Error{
			Code: agentbus.CodeForbidden, Message: "this caller may not name runs",
			Explain: &agentbus.Explain{Rule: "G6", Next: "leave " + agentbus.HeaderRunID + " out: each call is a run of its own, and its answer names it"},
		}
	case g.stopped.has(x.lineage.Run):
		return errRunStopped
	case t.plaintext() && (!x.lineage.Auth.IsZero() || !t.Authorization.IsZero() || t.Passthrough):
		return &agentbus.Error{
			Code: agentbus.CodeForbidden, Message: "the credential of this call may not cross the network in the clear to agent " + t.Name,
			Explain: &agentbus.Explain{Rule: "P24", Next: "give the agent an https URL, or set allow_plaintext: true on it"},
		}
	}
	return nil
}

// mayCall reports whether the caller may call the agent of that name. Whom the
// operator's configuration lets a driver call, the driver may call, on whoever's
// behalf.
func (x *exchange) mayCall(agent string) bool {
	return !x.listed() || slices.Contains(x.caller.Grants.Agents, agent)
}

// listed reports whether the caller may call some agents only.
func (x *exchange) listed() bool {
	declared := x.inProcess != nil && x.inProcess.Declared
	return !declared && x.caller.Grants != nil && x.caller.Grants.Agents != nil
}

// callable returns the agents that the caller may call.
func (g *Gateway) callable(x *exchange) []*Target {
	all := g.cfg.Router.Targets()
	if !x.listed() {
		return all
	}
	var some []*Target
	for _, t := range all {
		if x.mayCall(t.Name) {
			some = append(some, t)
		}
	}
	return some
}

// notCallable answers a name that is no agent's, or no agent's that the caller
// may call. A caller with a list does not learn which: there is nothing for it
// beside its list (G6).
func (g *Gateway) notCallable(x *exchange, name string) error {
	if safe := x.redact(name); safe != name { // a credential in the wrong place (P19)
		name, x.record.Agent = safe, safe
	}
	e := g.agentNotFound(x, name)
	if x.listed() {
		e.Code, e.Explain.Rule = agentbus.CodeForbidden, "G6"
		e.Message = "this caller may not call " + quoted(name) + "; it may call: " + strings.Join(e.Explain.Supported, ", ")
		e.Explain.Next = "name one of these agents, or ask the operator to add this one to your key"
	}
	return e
}

func (g *Gateway) agentNotFound(x *exchange, name string) *agentbus.Error {
	var names []string
	for _, t := range g.callable(x) {
		names = append(names, t.Name)
	}
	return &agentbus.Error{
		Code:    agentbus.CodeAgentNotFound,
		Message: "there is no agent " + quoted(x.redact(name)) + "; you may call: " + strings.Join(names, ", "),
		Explain: &agentbus.Explain{Rule: "G1", Supported: names, Next: "name one of these agents, or one of their aliases"},
	}
}

// quoted is a name that a caller sent, shortened, without what a relay could
// take for a mention.
func quoted(name string) string {
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	return strconv.Quote(strings.ReplaceAll(strings.ToValidUTF8(name, "?"), "@", "(at)"))
}
