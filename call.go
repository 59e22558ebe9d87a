package agentbus

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
)

// A Role says who a message comes from, as the receiving agent sees it.
type Role string

// The roles of a message.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// A Message is one entry of what a backend is sent.
type Message struct {
	Role       Role       `json:"role"`
	Content    string     `json:"content"`
	Name       string     `json:"name,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // of an assistant
	ToolCallID string     `json:"tool_call_id,omitempty"` // of a tool: the call it answers
}

// A ToolCall is a tool an agent asked for.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON, as the agent wrote it
}

// Usage is what an answer took.
type Usage struct {
	InputTokens  int64  `json:"input_tokens"`
	CachedTokens int64  `json:"cached_tokens,omitempty"` // of InputTokens, those read from a cache
	OutputTokens int64  `json:"output_tokens"`
	Cost         Micros `json:"cost_micros,omitempty"` // what the answering side charged, when it said so
	Estimated    bool   `json:"estimated,omitempty"`   // tokens were not reported, but counted from bytes
}

// Add returns the sum of u and v; it is estimated when either is. Figures come
// from agents: a sum that would overflow stays at the largest number, so that
// no absurd report turns into a negative one.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens: add(u.InputTokens, v.InputTokens), CachedTokens: add(u.CachedTokens, v.CachedTokens),
		OutputTokens: add(u.OutputTokens, v.OutputTokens), Cost: add(u.Cost, v.Cost), Estimated: u.Estimated || v.Estimated,
	}
}

// add is a + b for numbers that are not negative.
func add[T ~int64](a, b T) T {
	if sum := a + b; sum >= a || b < 0 {
		return sum
	}
	return math.MaxInt64
}

// A Call asks an agent for an answer. It is not changed once it is made: a
// middleware that wants another one copies it.
type Call struct {
	Lineage  Lineage
	Agent    string    // which agent, where a backend serves several
	Messages []Message // the conversation so far, oldest first
	// Seen is how many of Messages a backend that keeps a session has been
	// sent, or has said, already; others ignore it (R4).
	Seen int
	// Inline says that whoever the answer mentions is called by who makes the call
	// (C14); backends whose agents know of that tell them.
	Inline    bool
	MaxTokens int // most output tokens; 0: the agent decides
	// Model is asked for in place of the agent's own; "": its own. Temperature is how
	// freely it answers, from 0 to 2; nil: the agent decides.
	Model       string
	Temperature *float64
	// Resolution answers what the backend asked for when it was called in this
	// turn before; nil: it asked for nothing (R22).
	Resolution *Resolution
}

// A Chunk is a piece of an answer. Several fields may be set in one.
type Chunk struct {
	Text      string    // more of the answer's text
	Reasoning string    // more of the agent's reasoning, where it is told
	ToolCall  *ToolCall // a tool the agent asked for, whole
	Usage     *Usage    // what the answer took; the last one holds
	Model     string    // who answered, as the agent names its model
	Finish    string    // why the answer ended, such as "stop"
	Replayed  bool      // the answer came from a ledger's memory: nothing was executed or charged again
	// Children are what became of each of several agents whose answers this one is
	// made of (C18); the last ones hold.
	Children []Child
	// Receipts are those of payments that the agents took for the answer, each as it
	// was written (C32); the last ones hold.
	Receipts []json.RawMessage
	// Void says that everything before it in this answer is void: the attempt
	// failed and another one follows. Its other fields belong to the new one.
	Void bool
}

// A Reply is a whole answer: the chunks after the last void one, put together.
type Reply struct {
	Text      string     `json:"text"`
	Reasoning string     `json:"reasoning,omitempty"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	Usage     Usage      `json:"usage"`
	Model     string     `json:"model,omitempty"`
	Finish    string     `json:"finish,omitempty"`
	Replayed  bool       `json:"replayed,omitempty"`
	// Receipts are as in [Chunk].
	Receipts []json.RawMessage `json:"receipts,omitempty"`
}

// A Backend answers calls. Call is safe for concurrent use. The sequence it
// returns has one reader, does nothing before it is read, ends after its first
// error, and stops its work when the reader stops or ctx ends.
type Backend interface {
	Call(ctx context.Context, c *Call) iter.Seq2[Chunk, error]
}

// ErrForGood is in the cause of a context that ends because nobody will ask for
// the answer again: the join of a fan-out was met without it, or its run was
// stopped. A backend then ends what it set off elsewhere, too (C17). Of any other
// end it leaves that to go on: the turn may be called again.
var ErrForGood = errors.New("nobody will ask for the answer again")

// BackendFunc is a function as a Backend.
type BackendFunc func(ctx context.Context, c *Call) iter.Seq2[Chunk, error]

// Call calls f.
func (f BackendFunc) Call(ctx context.Context, c *Call) iter.Seq2[Chunk, error] { return f(ctx, c) }

// Answer makes a Backend of a function that gives whole answers.
func Answer(f func(context.Context, *Call) (Chunk, error)) Backend {
	return BackendFunc(func(ctx context.Context, c *Call) iter.Seq2[Chunk, error] {
		return func(yield func(Chunk, error) bool) { yield(f(ctx, c)) }
	})
}

// A Middleware adds a policy around a Backend.
type Middleware func(Backend) Backend

// Wrap returns b inside ms. The first listed is outermost: it sees a call first.
func Wrap(b Backend, ms ...Middleware) Backend {
	for _, m := range slices.Backward(ms) {
		b = m(b)
	}
	return b
}

// Collect reads an answer to its end. On an error it returns what had come
// with it.
func Collect(answer iter.Seq2[Chunk, error]) (Reply, error) {
	var b ReplyBuilder
	for c, err := range answer {
		if err != nil {
			return b.Reply(), err
		}
		b.Add(c)
	}
	return b.Reply(), nil
}

// A ReplyBuilder puts a Reply together for a reader that also passes the
// chunks on. The zero ReplyBuilder is ready.
type ReplyBuilder struct {
	reply           Reply
	text, reasoning strings.Builder
}

// Add appends a chunk; a void one empties the builder first.
func (b *ReplyBuilder) Add(c Chunk) {
	if c.Void {
		*b = ReplyBuilder{}
	}
	b.text.WriteString(c.Text)
	b.reasoning.WriteString(c.Reasoning)
	if c.ToolCall != nil {
		b.reply.ToolCalls = append(b.reply.ToolCalls, *c.ToolCall)
	}
	if c.Usage != nil {
		b.reply.Usage = *c.Usage
	}
	if c.Model != "" {
		b.reply.Model = c.Model
	}
	if c.Finish != "" {
		b.reply.Finish = c.Finish
	}
	if c.Receipts != nil {
		b.reply.Receipts = c.Receipts
	}
	b.reply.Replayed = b.reply.Replayed || c.Replayed
}

// Reply returns the answer so far.
func (b *ReplyBuilder) Reply() Reply {
	r := b.reply
	r.Text, r.Reasoning = b.text.String(), b.reasoning.String()
	return r
}
