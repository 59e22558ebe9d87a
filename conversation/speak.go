package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
	"github.com/agentbus/agentbus/internal/guard"
)

// speak calls the backend of a turn. It sets the turn's reply, and adds to its
// cost and attempts. It returns why there is no reply, or nil; when ctx has
// ended that means nothing.
func (d *driver) speak(ctx context.Context, now *intent, a *account) error {
	v := voice{intent: now}
	_, held := now.decided.held()
	now.tale = d.tale(now, held) // what was said before it was held was told then
	d.emit(Event{Type: EventTurnStarted, Turn: &now.turn})
	if d.gone {
		return nil
	}
	for chunk, err := range d.call(ctx, now, a) {
		if d.hear(ctx, &v, chunk, err); v.failure != nil || d.gone {
			break
		}
	}
	return d.heardOut(ctx, &v)
}

// A voice is the answer of one turn as it comes.
type voice struct {
	*intent
	reply   agentbus.ReplyBuilder
	text    *pieces
	why     *pieces // its reasoning
	failure error
	branch  bool // others speak at the same time
	size    int  // of the reply, in bytes
}

// MaxReply is how many bytes the answer of one turn may have: text, reasoning and
// tool calls together. Beyond, the turn fails with CodeAgentUnavailable: whatever
// answers, what a run keeps of it is bounded.
const MaxReply = 16 << 20

// perToolCall is what a tool call counts beside its text.
const perToolCall = 64

// grow returns why an answer is longer than one may be, or nil.
func (v *voice) grow(c *agentbus.Chunk) error {
	if c.Void {
		v.size = 0
	}
	v.size += len(c.Text) + len(c.Reasoning)
	if t := c.ToolCall; t != nil {
		v.size += perToolCall + len(t.ID) + len(t.Name) + len(t.Arguments)
	}
	once := len(c.Model) + len(c.Finish) // which are in every chunk, and kept once
	for _, receipt := range c.Receipts {
		once += len(receipt)
	}
	size := max(v.size, once)
	if size <= MaxReply {
		return nil
	}
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: string(v.turn.Speaker) + " answered more than is kept of one turn",
		Explain: &agentbus.Explain{Rule: "R14", Observed: size, Limit: MaxReply, Next: "have it answer with less, such as a link to the whole"},
	}
}

// call calls the backend of a turn.
func (d *driver) call(ctx context.Context, now *intent, a *account) iter.Seq2[agentbus.Chunk, error] {
	p, s, t := &d.conversation.Participants[now.who], &d.sent[now.who], &now.turn
	// A replay has what came of it recorded: a join may have been met first.
	if err := now.decided.refused(d.conversation.OnHalt); err != nil && d.options.retold == nil {
		return func(yield func(agentbus.Chunk, error) bool) { yield(agentbus.Chunk{}, err) }
	}
	if held, ok := now.decided.held(); ok {
		return said(d.ratified(now, held))
	}
	call := &agentbus.Call{
		Lineage: now.lineage, Agent: t.Agent, Messages: slices.Clip(s.messages), Seen: s.seen, Resolution: now.decided.answer(), Inline: d.relays(),
		Model: p.Model, Temperature: p.Temperature, MaxTokens: p.MaxTokens,
	}
	root, path := d.place()
	ctx = context.WithValue(ctx, enclosingKey{}, &enclosing{turn: t.TurnKey, asked: t.Digest, account: a, options: &d.options, root: root, within: d.execution.ID, path: append(path, t.Speaker), until: d.until})
	return guard.Call(ctx, p.Backend, call)
}

// said is a reply as a backend gives it.
func said(r agentbus.Reply) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		for i := range r.ToolCalls {
			if !yield(agentbus.Chunk{ToolCall: &r.ToolCalls[i]}, nil) {
				return
			}
		}
		yield(agentbus.Chunk{Text: r.Text, Reasoning: r.Reasoning, Usage: &r.Usage, Model: r.Model, Finish: r.Finish, Replayed: r.Replayed, Receipts: r.Receipts}, nil)
	}
}

// hear puts the next piece of an answer to the rest, and tells of it.
func (d *driver) hear(ctx context.Context, v *voice, chunk agentbus.Chunk, err error) {
	if v.failure != nil {
		return // a branch that is told to end
	}
	if err != nil {
		v.failure = err
		return
	}
	faults.At(faults.SpeakAmid)
	t := &v.turn
	if chunk.Void {
		t.Cost = sum(t.Cost, max(0, v.reply.Reply().Usage.Cost)) // the failed attempt's
		t.Attempts++
		v.text, v.why = nil, nil
		v.tale.void()
		d.emit(Event{Type: EventRetry, Turn: t, Branch: v.branch})
	}
	if err := v.grow(&chunk); err != nil {
		v.failure = err
		v.reply.Add(agentbus.Chunk{Usage: chunk.Usage}) // it is charged all the same
		return
	}
	if v.text == nil {
		v.text, v.why = d.options.pieces(), d.options.pieces()
	}
	chunk.Text, chunk.Reasoning, chunk.ToolCall = v.text.next(chunk.Text), v.why.next(chunk.Reasoning), d.options.toolCall(chunk.ToolCall)
	chunk.Receipts = d.options.receipts(chunk.Receipts)
	d.take(ctx, v, chunk)
}

// take puts a piece without secrets to the rest.
func (d *driver) take(ctx context.Context, v *voice, chunk agentbus.Chunk) {
	t := &v.turn
	v.reply.Add(chunk)
	v.tale.add(ctx, &chunk)
	if chunk.Text != "" || chunk.Reasoning != "" {
		d.emit(Event{Type: EventDelta, Turn: t, Chunk: chunk, Branch: v.branch})
	}
	if chunk.ToolCall != nil {
		d.emit(Event{Type: EventToolCall, Turn: t, Chunk: chunk, Branch: v.branch})
	}
}

// heardOut ends an answer. It returns why that is none, or nil.
func (d *driver) heardOut(ctx context.Context, v *voice) error {
	if v.text != nil {
		if last := (agentbus.Chunk{Text: v.text.end(), Reasoning: v.why.end()}); last.Text != "" || last.Reasoning != "" {
			d.take(ctx, v, last)
		}
	}
	if err := v.end(); err != nil {
		return err
	}
	return d.escalates(v.intent)
}

// end sets the reply of the turn and adds its cost. It returns why that is no
// answer, or nil.
func (v *voice) end() error {
	t := &v.turn
	t.Reply = storable(v.reply.Reply())
	t.Cost = sum(t.Cost, max(0, t.Reply.Usage.Cost))
	if v.failure == nil && strings.TrimSpace(t.Reply.Text) == "" && len(t.Reply.ToolCalls) == 0 {
		return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: string(t.Speaker) + " completed without text"}
	}
	if asks(v.failure) {
		if err := unkept(v.failure); err != nil {
			return err
		}
	}
	return v.failure
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

// maxMessage bounds the message of an error that is stored, in bytes, and so what
// explains it. Both are in the event of its turn, which is small.
const maxMessage = 4 << 10

// recordable returns the error that err is stored as, without secrets (E28).
func (d *driver) recordable(err error) *agentbus.Error {
	e := recordable(err)
	e.Message, e.Explain = d.options.text(e.Message), d.options.explain(e.Explain)
	return e
}

// storableText returns s as a journal gives it back.
func storableText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// recordable returns the error that err is stored as: see storable. One that is
// not ours stays in the process, in Err: it may tell of what is not to be stored.
func recordable(err error) *agentbus.Error {
	e, ours := errors.AsType[*agentbus.Error](err)
	if !ours {
		return &agentbus.Error{Code: agentbus.CodeInternal, Message: "the participant's backend failed with an error that has no code", Err: err}
	}
	short := *e // it may be shared
	if len(e.Message) > maxMessage {
		short.Message = e.Message[:maxMessage] + "…"
	}
	short.Message = storableText(short.Message)
	if short.Explain = storableExplain(e.Explain); !json.Valid(e.Policy) {
		short.Policy = nil
	}
	if _, err := json.Marshal(short.Ask); err != nil {
		short.Ask = nil // nobody waits for it: see unkept
	}
	return &short
}

// storableExplain returns x if it can be written, and is small: a backend may observe
// anything. Of any other its rule and what to do next stay.
func storableExplain(x *agentbus.Explain) *agentbus.Explain {
	if x == nil {
		return nil
	}
	if raw, err := json.Marshal(x); err == nil && len(raw) <= maxMessage {
		return x
	}
	if len(x.Rule)+len(x.Next) > maxMessage {
		return nil
	}
	return &agentbus.Explain{Rule: x.Rule, Next: x.Next}
}
