package openwop

import (
	"encoding/json"
	"slices"

	"github.com/agentbus/agentbus"
)

// live is an agent that is called live by the seam of that name (E73): what it
// does stands between two events without content (E26).
func live(a *activation) (json.RawMessage, error) {
	c := struct {
		Agent  string `json:"agentId"`
		Source string `json:"source"`
		Tool   string `json:"attemptTool"`
		Bad    bool   `json:"forceInvalidResult"`
	}{Source: "run-api"}
	in, _ := oneLine(a.fold.inputs) // of JSON
	_ = json.Unmarshal(in, &c)
	agent := a.agent.AgentID
	if c.Agent != "" {
		agent = c.Agent
	}
	if !slices.Contains([]string{"workflow-node", "run-api", "chat-mention"}, c.Source) {
		return nil, fail("validation_error", "there is no such source")
	}
	invocation := "inv_" + a.node.ID + "_" + itoa(a.index)
	a.emit(agentbus.EventInvocationStarted, nil, agentbus.InvocationStarted{InvocationID: invocation, AgentID: agent, Source: c.Source})
	outcome := "completed"
	if c.Tool != "" {
		for range denials(agentbus.HarnessRole{Agent: agent, Allowed: a.cfg.Tools}, c.Tool) {
			outcome = "refused"
			call := agentbus.NewToolCalled(agent, c.Tool, "call_"+a.node.ID+"_0", nil)
			why := &agentbus.EventError{Code: "forbidden", Message: "the agent may not use this tool"}
			a.emit(agentbus.EventAgentToolReturned, nil, agentbus.NewToolDenied(&call, why.Code, why)) // alone: the tool was never called (E24)
		}
	}
	if c.Bad {
		outcome = "failed"
	}
	ok := !c.Bad
	a.emit(agentbus.EventInvocationCompleted, nil, agentbus.InvocationCompleted{
		InvocationID: invocation, AgentID: agent, Outcome: outcome, SchemaValidated: &ok,
	})
	return oneLine(map[string]string{"invocationId": invocation, "outcome": outcome})
}

func denials(r agentbus.HarnessRole, tool string) []string {
	_, denied := agentbus.FilterTools(r, []string{tool})
	return denied
}
