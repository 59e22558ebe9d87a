package server

import (
	"fmt"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/openwop"
)

// workflowOf is a conversation as a workflow.
func workflowOf(c *conversation.Conversation) *openwop.Workflow {
	w := &openwop.Workflow{
		ID: c.Name, Name: c.Name, Version: "1.0.0", Edges: []openwop.Edge{}, Variables: []openwop.Variable{},
		Triggers: []openwop.Trigger{{ID: "manual", Type: "manual"}}, Channels: map[string]openwop.Channel{"messages": {Reducer: "message"}},
	}
	ids := map[agentbus.Speaker]string{}
	for i := range c.Participants {
		id, agent := c.Participants[i].Node()
		ids[c.Participants[i].Name] = id
		w.Nodes = append(w.Nodes, openwop.Node{
			ID: id, TypeID: conversation.ParticipantType, Name: string(c.Participants[i].Name), Position: openwop.Place{X: 200 * i}, Config: []byte("{}"), Agent: &agent,
		})
	}
	edge := func(from, to agentbus.Speaker) {
		w.Edges = append(w.Edges, openwop.Edge{ID: fmt.Sprintf("e%d", len(w.Edges)+1), Source: ids[from], Target: ids[to]})
	}
	switch p := c.Plan.(type) {
	case conversation.Moderator:
		for _, other := range p.Others {
			edge(p.Decides, other)
			edge(other, p.Decides)
		}
	case conversation.FanOut:
		for _, asked := range p.Ask {
			if p.Synthesizer != "" {
				edge(asked, p.Synthesizer)
			}
		}
	default:
		for i, n := 0, len(c.Participants); i < n; i++ {
			edge(c.Participants[i].Name, c.Participants[(i+1)%n].Name)
		}
	}
	return w
}
