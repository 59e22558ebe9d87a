package conversation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/agentbus/agentbus"
)

const (
	// ParticipantType is the typeId of every node (E55).
	ParticipantType = "vendor.agentbus.participant"

	channelMessages = "messages"
	maxNode         = 128 // bytes of a nodeId
	maxAgent        = 256 // of an agentId or its name
)

// named sets what the run is called on the event wire (E55, E45).
func (d *driver) named() {
	c := &d.conversation
	d.nodes, d.refs = make([]string, len(c.Participants)), make([]agentbus.AgentRef, len(c.Participants))
	for i := range c.Participants {
		d.nodes[i], d.refs[i] = c.Participants[i].Node()
	}
	d.talk, d.seed, d.started = agentbus.ConversationID(cmp.Or(c.origin, d.execution.ID), c.Name, 0), d.options.text(storableText(d.execution.Seed)), d.began()
	if r := d.options.retold; r != nil {
		d.talk, d.seed, d.started = r.conversation, r.seed, r.started
	}
}

// Node returns what p is called on the event wire: its nodeId, and who it is there
// (E20, E55).
func (p *Participant) Node() (id string, agent agentbus.AgentRef) {
	id, agent = p.slug(), p.Ref
	id = id[:min(len(id), maxNode)]
	if agent.AgentID == "" {
		agent.AgentID = "host:" + p.slug()
		agent.AgentID = agent.AgentID[:min(len(agent.AgentID), maxAgent)]
	}
	agent.Name = cmp.Or(agent.Name, firstRunes(storableText(string(p.Name)), maxAgent/4))
	return id, agent
}

// began is how the run was asked for. One that shares the bus run of who called it
// tells that, and the run around it where that is known (E56).
func (d *driver) began() agentbus.RunStarted {
	s := d.options.Started
	if string(d.execution.ID) == string(d.execution.Run) {
		return s
	}
	about := map[string]string{"vendor.agentbus.run_id": string(d.execution.Run)}
	if d.enclosing.serves(&d.options.Lineage) {
		about["vendor.agentbus.parent_run_id"] = string(d.enclosing.within)
	}
	s.Metadata, _ = json.Marshal(about) // strings
	return s
}

// of returns an event of a turn.
func (d *driver) of(now *intent, kind string, data any) agentbus.Event {
	e := d.event(kind, now.turn.ID, data)
	e.Node, e.Hold = d.nodes[now.who], now.hold
	return e
}

// number is the place of a turn in its conversation, whose seed is 0.
func (d *driver) number(t *agentbus.Turn) int { return t.Index - d.execution.First + 1 }

// invocation names an attempt at a turn, in a fork as in its source (E52).
func (d *driver) invocation(now *intent) string {
	sum := sha256.Sum256([]byte(d.talk + "\x00" + strconv.Itoa(d.number(&now.turn)) + "\x00" + strconv.Itoa(now.begun)))
	return "inv_" + hex.EncodeToString(sum[:8])
}

// message is what was said in a turn, as the wire has it (E44).
func (d *driver) message(who int, t *agentbus.Turn) agentbus.ConversationTurn {
	id := d.refs[who].AgentID
	return agentbus.ConversationTurn{
		MessageID: agentbus.MessageID(d.talk, d.number(t), agentbus.TurnRoleAgent), From: id, Content: t.Reply.Text, TS: t.Ended.UnixMilli(),
		Role: agentbus.TurnRoleAgent, TurnIndex: d.number(t), SpeakerID: id,
	}
}

// opening is the seed as a message.
func (d *driver) opening() agentbus.ConversationTurn {
	return agentbus.ConversationTurn{
		MessageID: agentbus.MessageID(d.talk, 0, string(agentbus.RoleUser)), From: string(agentbus.RoleUser), Content: d.seed,
		TS: max(0, d.execution.Began.UnixMilli()), Role: string(agentbus.RoleUser),
	}
}

// begins returns the events that open a run, or the one that says that it goes
// on.
func (d *driver) begins(resumed bool) []agentbus.Event {
	type onward struct {
		agentbus.RunPausedFor
		Bus struct {
			Turns int `json:"turns"`
		} `json:"agentbus"`
	}
	if resumed {
		var data onward
		data.Bus.Turns = len(d.turns)
		return []agentbus.Event{d.event(agentbus.EventRunResumed, "", data)}
	}
	inputs, _ := json.Marshal(map[string]string{"seed": d.seed})
	started := d.started
	started.WorkflowID, started.Inputs = d.conversation.Name, inputs
	return []agentbus.Event{
		d.event(agentbus.EventRunStarted, "", started),
		d.event(agentbus.EventConversationOpened, "", agentbus.ConversationOpened{
			ConversationID: d.talk, InitialTurn: d.opening(), Participants: d.refs, Capabilities: []string{"multi-turn", "streaming"},
		}),
	}
}

// opens returns the events of an intent: the node starts, or goes on from what
// was decided of what it asked.
func (d *driver) opens(now *intent) (events []agentbus.Event) {
	t, node := &now.turn, d.nodes[now.who]
	now.begun = t.Attempts
	if was, waited := d.carried[t.Index]; waited && was.State == agentbus.TurnWaiting && len(now.decided.resolved) > 0 {
		events = d.resumes(now, &was)
	} else {
		events = append(events, d.of(now, agentbus.EventNodeStarted, agentbus.NodeStarted{
			NodeID: node, TypeID: ParticipantType, Attempt: max(0, t.Attempts-1), Agent: &d.refs[now.who], TurnIndex: new(d.number(t)),
		}))
	}
	return append(events, d.of(now, agentbus.EventInvocationStarted, agentbus.InvocationStarted{
		InvocationID: d.invocation(now), AgentID: d.refs[now.who].AgentID, Source: "workflow-node", ModelClass: d.refs[now.who].ModelClass,
	}))
}

// completes ends the bracket around what an agent did (E26).
func (d *driver) completes(now *intent, outcome string) []agentbus.Event {
	if now.begun == 0 {
		return nil
	}
	return []agentbus.Event{d.of(now, agentbus.EventInvocationCompleted, agentbus.InvocationCompleted{
		InvocationID: d.invocation(now), AgentID: d.refs[now.who].AgentID, Outcome: outcome,
	})}
}
