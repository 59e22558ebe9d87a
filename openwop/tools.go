package openwop

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/gowebpki/jcs"

	"github.com/agentbus/agentbus"
)

// argsHash is the SHA-256 of canonical JSON (RFC 8785), of what was redacted
// (E28); "" of none.
func argsHash(args json.RawMessage) string {
	if len(args) == 0 {
		return ""
	}
	canonical, err := jcs.Transform(args)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// A Role is which tools an agent may use: its allow-list (E27).
type Role struct {
	Agent   string
	Allowed []string // <scope>:<tool-id>; empty: none
}

// FilterTools returns those of offered that the role may use. It is the one
// place where that is decided, before anything is dispatched; what cannot be
// decided is denied (E27).
func FilterTools(r Role, offered []string) (allowed, denied []string) {
	for _, tool := range offered {
		if tool != "" && slices.Contains(r.Allowed, tool) {
			allowed = append(allowed, tool)
		} else {
			denied = append(denied, tool)
		}
	}
	return allowed, denied
}

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
		for range denials(Role{Agent: agent, Allowed: a.cfg.Tools}, c.Tool) {
			outcome = "refused"
			call := agentbus.NewToolCalled(agent, c.Tool, "call_"+a.node.ID+"_0", nil)
			r := agentbus.NewToolReturned(&call, nil, &agentbus.EventError{Code: "forbidden", Message: "the agent may not use this tool"}, 0)
			r.Status = "forbidden"
			a.emit(agentbus.EventAgentToolReturned, nil, r) // alone: the tool was never called (E24)
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

func denials(r Role, tool string) []string {
	_, denied := FilterTools(r, []string{tool})
	return denied
}
