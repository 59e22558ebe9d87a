package conversation

import (
	"context"
	"iter"
	"slices"
	"strings"

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
	ctx = context.WithValue(ctx, enclosingKey{}, &enclosing{turn: t.TurnKey, account: a, options: &d.options})
	var reply agentbus.ReplyBuilder
	failure := d.listen(guard.Call(ctx, p.Backend, call), t, &reply)
	t.Reply = reply.Reply()
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
