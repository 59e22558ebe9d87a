package conversation

import (
	"context"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/guard"
)

// speak calls the backend of a turn. It sets the turn's reply, and adds to its
// cost and attempts. It returns why there is no reply, or nil; when ctx has
// ended that means nothing.
func (d *driver) speak(ctx context.Context, now *intent, a *account) error {
	p, s, t := &d.conversation.Participants[now.who], &d.sent[now.who], &now.turn
	call := &agentbus.Call{Lineage: now.lineage, Agent: t.Agent, Messages: slices.Clip(s.messages), Seen: s.seen}
	d.emit(Event{Type: EventTurnStarted, Turn: t})
	if d.gone {
		return nil
	}
	ctx = context.WithValue(ctx, enclosingKey{}, &enclosing{turn: t.TurnKey, asked: t.Digest, account: a, options: &d.options})
	var reply agentbus.ReplyBuilder
	failure := d.listen(guard.Call(ctx, p.Backend, call), t, &reply)
	t.Reply = storable(reply.Reply())
	t.Cost = sum(t.Cost, max(0, t.Reply.Usage.Cost))
	if failure == nil && strings.TrimSpace(t.Reply.Text) == "" && len(t.Reply.ToolCalls) == 0 {
		failure = &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: string(p.Name) + " completed without text"}
	}
	return failure
}

// listen puts the reply together as it comes.
func (d *driver) listen(answer iter.Seq2[agentbus.Chunk, error], t *agentbus.Turn, reply *agentbus.ReplyBuilder) error {
	for chunk, err := range answer {
		if err != nil {
			return err
		}
		if chunk.Void {
			t.Cost = sum(t.Cost, max(0, reply.Reply().Usage.Cost)) // the failed attempt's
			t.Attempts++
			d.emit(Event{Type: EventRetry, Turn: t})
		}
		reply.Add(chunk)
		if chunk.Text != "" || chunk.Reasoning != "" {
			d.emit(Event{Type: EventDelta, Turn: t, Chunk: chunk})
		}
		if chunk.ToolCall != nil {
			d.emit(Event{Type: EventToolCall, Turn: t, Chunk: chunk})
		}
		if d.gone {
			return nil
		}
	}
	return nil
}

// storable returns r as a journal gives it back: text that is not UTF-8 does not
// survive being stored, and a resumed run must say what the run said before.
func storable(r agentbus.Reply) agentbus.Reply {
	for _, s := range [...]*string{&r.Text, &r.Reasoning, &r.Model, &r.Finish} {
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
	for i := range r.ToolCalls { // the list is the builder's, which is done with
		c := &r.ToolCalls[i]
		for _, s := range [...]*string{&c.ID, &c.Name, &c.Arguments} {
			*s = strings.ToValidUTF8(*s, "\uFFFD")
		}
	}
	return r
}

// recordable returns the error that e is stored as: see storable.
func recordable(e *agentbus.Error) *agentbus.Error {
	if utf8.ValidString(e.Message) {
		return e
	}
	valid := *e // it may be shared
	valid.Message = strings.ToValidUTF8(e.Message, "\uFFFD")
	return &valid
}
