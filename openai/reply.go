package openai

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// completion is an answer, or a piece of a streamed one, as it is written.
type completion struct {
	ID      string     `json:"id"`
	Object  string     `json:"object"`
	Created int64      `json:"created"`
	Model   string     `json:"model"`
	Choices []outbound `json:"choices"`
	Usage   *usage     `json:"usage,omitempty"`
}

type outbound struct {
	Index        int     `json:"index"`
	Message      *saying `json:"message,omitempty"`
	Delta        *saying `json:"delta,omitempty"`
	FinishReason *string `json:"finish_reason"`
}

type saying struct {
	Role      agentbus.Role `json:"role,omitempty"`
	Content   *string       `json:"content,omitempty"`
	Reasoning string        `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall    `json:"tool_calls,omitempty"`
}

// reply writes one answer.
type reply struct {
	w        http.ResponseWriter
	envelope completion
	wanted   string // the model asked for
	usage    bool   // a stream ends with an event for the usage
	began    bool   // bytes have been written

	tools  int
	finish string
	used   *agentbus.Usage
}

func newReply(w http.ResponseWriter, in *inbound) *reply {
	return &reply{
		w: w, wanted: in.Model, usage: in.StreamOptions.IncludeUsage,
		envelope: completion{ID: "chatcmpl-" + rand.Text(), Created: time.Now().Unix(), Model: in.Model},
	}
}

// whole writes the answer in one piece, once it is complete.
func (r *reply) whole(answer iter.Seq2[agentbus.Chunk, error]) error {
	got, err := agentbus.Collect(answer)
	if err != nil {
		return err
	}
	said := &saying{Role: agentbus.RoleAssistant, Content: &got.Text, Reasoning: got.Reasoning}
	for _, t := range got.ToolCalls {
		said.ToolCalls = append(said.ToolCalls, wireToolCall(t, nil))
	}
	finish := finishReason(got.Finish, len(got.ToolCalls))
	r.envelope.Object, r.envelope.Model = "chat.completion", cmp.Or(got.Model, r.wanted)
	r.envelope.Choices = []outbound{{Message: said, FinishReason: &finish}}
	r.envelope.Usage = toldUsage(&got.Usage)
	raw, err := marshal(r.envelope)
	if err != nil {
		return err
	}
	r.w.Header().Set("Content-Type", "application/json")
	r.w.Header().Set("Cache-Control", "no-store")
	r.began = true
	_, err = r.w.Write(raw)
	return err
}

func finishReason(said string, tools int) string {
	switch {
	case said != "":
		return said
	case tools > 0:
		return "tool_calls"
	}
	return "stop"
}

var errVoid = &agentbus.Error{
	Code: agentbus.CodeAgentUnavailable, Message: "the agent failed after it had begun to answer; what was said before is void",
	Explain: &agentbus.Explain{Next: "ask again; without stream, a failed attempt never shows"},
}

// stream writes the answer as it comes. Once a byte is out, an error is
// written as the last frame, unless the caller has left: a gateway that cuts a
// call says itself why.
func (r *reply) stream(ctx context.Context, answer iter.Seq2[agentbus.Chunk, error], l agentbus.Lineage) error {
	for c, err := range answer {
		if err == nil {
			err = r.chunk(&c)
		}
		if err == nil {
			continue
		}
		if r.began && ctx.Err() == nil && !errors.Is(err, errWrite) {
			return errors.Join(err, r.frame(httpx.ErrorBody(l, err)))
		}
		return err
	}
	return r.end()
}

// chunk writes one chunk.
func (r *reply) chunk(c *agentbus.Chunk) error {
	if c.Void {
		if r.began {
			return errVoid
		}
		r.finish, r.used = "", nil
	}
	r.envelope.Model = cmp.Or(c.Model, r.envelope.Model)
	r.finish = cmp.Or(c.Finish, r.finish)
	if c.Usage != nil {
		r.used = c.Usage
	}
	said := saying{Reasoning: c.Reasoning}
	if c.Text != "" {
		said.Content = &c.Text
	}
	if c.ToolCall != nil {
		index := r.tools
		r.tools++
		said.ToolCalls = []toolCall{wireToolCall(*c.ToolCall, &index)}
	}
	if said.Content == nil && said.Reasoning == "" && said.ToolCalls == nil {
		return nil
	}
	return r.delta(&said, nil, nil)
}

// delta writes a piece of the answer.
func (r *reply) delta(said *saying, finish *string, used *usage) error {
	if !r.began {
		said.Role = agentbus.RoleAssistant
	}
	return r.completion([]outbound{{Delta: said, FinishReason: finish}}, used)
}

// end writes the end of a good answer. Its usage stands in an event of its own
// where that was asked for, and otherwise in the event that tells the end: who
// charges for the answer reads it there (G26).
func (r *reply) end() error {
	finish, used := finishReason(r.finish, r.tools), toldUsage(r.used)
	if !r.usage || used == nil {
		if err := r.delta(&saying{}, &finish, used); err != nil {
			return err
		}
		return r.frame([]byte("[DONE]"))
	}
	if err := r.delta(&saying{}, &finish, nil); err != nil {
		return err
	}
	if err := r.completion([]outbound{}, used); err != nil {
		return err
	}
	return r.frame([]byte("[DONE]"))
}

func (r *reply) completion(choices []outbound, u *usage) error {
	r.envelope.Object, r.envelope.Choices, r.envelope.Usage = "chat.completion.chunk", choices, u
	raw, err := marshal(r.envelope)
	if err != nil {
		return err
	}
	return r.frame(raw)
}

// errWrite says that the caller cannot be written to any more.
var errWrite = errors.New("write answer")

// frame writes one event.
func (r *reply) frame(data []byte) error {
	if !r.began {
		h := r.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
		r.began = true
	}
	event := make([]byte, 0, len(data)+8)
	event = append(append(append(event, "data: "...), data...), "\n\n"...)
	if _, err := r.w.Write(event); err != nil {
		return errors.Join(errWrite, err)
	}
	if err := http.NewResponseController(r.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errors.Join(errWrite, err)
	}
	return nil
}
