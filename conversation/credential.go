package conversation

import (
	"encoding/json"
	"strconv"

	"github.com/agentbus/agentbus"
)

// lacks returns the events of a run that waits for the credential of its payer: the
// node that would go on asks for it (E57, R18). One that waited for it before asks
// nothing new.
func (d *driver) lacks(h *agentbus.Halt) []agentbus.Event {
	if d.lacked {
		return nil
	}
	node, key := d.creditKey()
	asked := agentbus.InterruptPayload{Kind: "custom", Key: key}
	asked.Data, _ = json.Marshal(map[string]any{ // strings
		"customKind": "auth-required", "payload": map[string]string{"title": "send a credential of the payer", "reason": h.Reason},
	})
	return []agentbus.Event{
		d.ofNode(node, agentbus.EventWaitRequested, asked),
		d.ofNode(node, agentbus.EventNodeSuspended, agentbus.NodeSuspended{
			NodeID: node, InterruptID: key, Kind: asked.Kind, Key: key, Reason: agentbus.ReasonCredential,
		}),
	}
}

// credited returns the events of a run that waited for the credential of its payer
// and goes on with it.
func (d *driver) credited() []agentbus.Event {
	if !d.lacked {
		return nil
	}
	d.lacked = false
	node, key := d.creditKey()
	resumed := agentbus.NodeResumed{NodeID: node, InterruptID: key, ResumeValue: json.RawMessage(`{"action":"accept"}`)}
	return []agentbus.Event{d.ofNode(node, agentbus.EventWaitResolved, resumed), d.ofNode(node, agentbus.EventNodeResumed, resumed)}
}

// creditKey names the node that would go on, and what it asks for: its number is
// odd, and those of what turns ask are even (E36).
func (d *driver) creditKey() (node, key string) {
	who, attempts := 0, 0
	next := d.execution.First + len(d.turns)
	if t, carried := d.carried[next]; carried {
		who, attempts = d.index(t.Speaker), t.Attempts
	} else if step, err := d.next(); err == nil && len(step.Together) > 0 {
		who = d.index(step.Together[0])
	} else if err == nil && step.Speaker != "" {
		who = d.index(step.Speaker)
	}
	who = max(0, who)
	n := d.attempts(d.conversation.Participants[who].Name) + attempts
	return d.nodes[who], d.nodes[who] + ":" + strconv.Itoa(2*n+1)
}

// ofNode returns an event of a node that is in no turn.
func (d *driver) ofNode(node, kind string, data any) agentbus.Event {
	e := d.event(kind, "", data)
	e.Node = node
	return e
}
