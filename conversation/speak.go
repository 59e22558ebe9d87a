package conversation

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// leave is how long a backend may take to return once its call is cancelled.
const leave = 100 * time.Millisecond

// speech is one thing a backend said.
type speech struct {
	chunk agentbus.Chunk
	err   error
}

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
	ctx, cancel := context.WithCancel(context.WithValue(ctx, enclosingKey{}, &enclosing{turn: t.TurnKey, account: a, options: &d.options}))
	said := make(chan speech)
	go utter(ctx, p.Backend, call, said) // ends with the backend; see the package's comment
	defer func() {
		cancel()
		await(said)
	}()
	var reply agentbus.ReplyBuilder
	failure := d.listen(ctx, said, t, &reply)
	t.Reply = reply.Reply()
	t.Cost = sum(t.Cost, max(0, t.Reply.Usage.Cost))
	if failure == nil && strings.TrimSpace(t.Reply.Text) == "" && len(t.Reply.ToolCalls) == 0 {
		failure = &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: string(p.Name) + " completed without text"}
	}
	return failure
}

// listen puts the reply together as it comes.
func (d *driver) listen(ctx context.Context, said <-chan speech, t *agentbus.Turn, reply *agentbus.ReplyBuilder) error {
	for !d.gone {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s, more := <-said:
			if !more || s.err != nil {
				return s.err
			}
			if s.chunk.Void {
				t.Cost = sum(t.Cost, max(0, reply.Reply().Usage.Cost)) // the failed attempt's
				t.Attempts++
				d.emit(Event{Type: EventRetry, Turn: t})
			}
			reply.Add(s.chunk)
			if s.chunk.Text != "" || s.chunk.Reasoning != "" {
				d.emit(Event{Type: EventDelta, Turn: t, Chunk: s.chunk})
			}
			if s.chunk.ToolCall != nil {
				d.emit(Event{Type: EventToolCall, Turn: t, Chunk: s.chunk})
			}
		}
	}
	return nil
}

// utter reads a backend's answer to its end, or until ctx ends, and closes said
// when the backend has returned. A panic of the backend fails its turn only.
func utter(ctx context.Context, b agentbus.Backend, call *agentbus.Call, said chan<- speech) {
	defer close(said)
	tell := func(s speech) bool {
		select {
		case said <- s:
			return s.err == nil
		case <-ctx.Done():
			return false
		}
	}
	defer func() {
		if p := recover(); p != nil {
			tell(speech{err: &agentbus.Error{
				Code: agentbus.CodeInternal, Message: "the participant's backend panicked", Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack()),
			}})
		}
	}()
	for c, err := range b.Call(ctx, call) {
		if !tell(speech{c, err}) {
			return
		}
	}
}

// await waits until a cancelled backend has returned, or for as long as it may
// take.
func await(said <-chan speech) {
	timer := time.NewTimer(leave)
	defer timer.Stop()
	for {
		select {
		case _, more := <-said:
			if !more {
				return
			}
		case <-timer.C:
			return
		}
	}
}
