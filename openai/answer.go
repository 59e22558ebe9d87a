package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/sse"
)

// linger is how long a stream that has said [DONE] may take to end. Its
// trailers come with the end, and only then can the connection be used again.
// A bus is waited for longer: it tells there what it charged, and a run counts
// that (R8).
const (
	linger      = 250 * time.Millisecond
	lingerOfBus = 10 * time.Second
)

// frame is a piece of a stream, or a whole answer.
type frame struct {
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        *piece `json:"delta"`
	Message      *piece `json:"message"` // of a whole answer, and of some streams
	FinishReason string `json:"finish_reason"`
}

type piece struct {
	Content          content    `json:"content"`
	ReasoningContent content    `json:"reasoning_content"`
	Reasoning        content    `json:"reasoning"`
	ToolCalls        []toolCall `json:"tool_calls"`
}

// answer reads one answer.
type answer struct {
	backend *Backend
	call    *agentbus.Call
	emit    func(agentbus.Chunk) error
	resp    *http.Response

	tools []*tool
	index map[int]*tool  // the tool call that pieces of an index belong to
	last  agentbus.Chunk // usage, model and finish
}

// tool is a tool call as it comes together.
type tool struct {
	id, name  string
	arguments strings.Builder
}

// readWhole reads an answer that is one JSON object.
func (a *answer) readWhole(ctx context.Context) error {
	raw, err := io.ReadAll(&body{a.resp.Body, a.backend.config.MaxAnswer})
	if err != nil {
		return a.backend.broken(ctx, "the answer was cut", err)
	}
	var f frame
	if err := json.Unmarshal(raw, &f); err != nil {
		if ctx.Err() != nil {
			return a.backend.broken(ctx, "", err) // what came is half of it
		}
		return a.malformed("the agent's answer is no chat completion", err)
	}
	if !present(f.Error) && len(f.Choices) == 0 {
		return a.malformed("the agent's answer has no choices", nil)
	}
	if err := a.add(&f); err != nil {
		return err
	}
	return a.finish(true)
}

// malformed returns the error for an answer that cannot be read. An error of
// our own stands: it names what cannot be carried.
func (a *answer) malformed(message string, err error) error {
	if own, ok := errors.AsType[*agentbus.Error](err); ok {
		return own
	}
	return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: message, Err: err}
}

// readStream reads an answer that is server-sent events. One that ends without
// [DONE] and without a finish reason was cut.
func (a *answer) readStream(ctx context.Context) error {
	in := &body{a.resp.Body, a.backend.config.MaxAnswer}
	events := sse.NewReader(in, int(min(a.backend.config.MaxAnswer, 1<<30)))
	for {
		e, err := events.Next()
		if err == nil || errors.Is(err, sse.ErrCut) {
			done, failure := a.event(e)
			if failure != nil && (err == nil || json.Valid(e.Data)) {
				return a.fail(failure)
			}
			if done {
				return a.finish(drained(a.resp, in))
			}
			if err == nil {
				continue
			}
		} else if !errors.Is(err, io.EOF) {
			return a.fail(a.backend.broken(ctx, "the answer was cut", err))
		}
		if a.last.Finish == "" {
			return a.fail(a.backend.broken(ctx, "the answer was cut", err))
		}
		return a.finish(true)
	}
}

// drained reads in to its end, if that comes soon, and reports whether it came.
func drained(resp *http.Response, in io.Reader) bool {
	most := linger
	if len(resp.Header[headerAttempts]) > 0 {
		most = lingerOfBus
	}
	timer := time.AfterFunc(most, func() { _ = resp.Body.Close() })
	defer timer.Stop()
	_, err := io.Copy(io.Discard, in)
	return err == nil
}

// event takes one event of a stream. It reports whether that was the last.
func (a *answer) event(e sse.Event) (done bool, err error) {
	data := bytes.TrimSpace(e.Data)
	if len(data) == 0 {
		return false, nil
	}
	if string(data) == "[DONE]" {
		return true, nil
	}
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		return false, a.malformed("the agent's answer holds an event that is no JSON of a chat completion", err)
	}
	if e.Type == "error" && !present(f.Error) {
		f.Error = data
	}
	return false, a.add(&f)
}

// add takes one frame: text and reasoning go on at once, the rest is kept.
func (a *answer) add(f *frame) error {
	if present(f.Error) {
		return a.backend.failed(a.call, f.Error)
	}
	if f.Model != "" {
		a.last.Model = f.Model
	}
	if f.Usage != nil {
		a.last.Usage = f.Usage.usage()
	}
	for i := range f.Choices {
		if f.Choices[i].Index != 0 {
			continue // one answer was asked for
		}
		if err := a.choice(&f.Choices[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) choice(c *choice) error {
	if c.FinishReason != "" {
		a.last.Finish = c.FinishReason
	}
	for _, p := range [...]*piece{c.Delta, c.Message} {
		if p == nil {
			continue
		}
		for i := range p.ToolCalls {
			if err := a.tool(&p.ToolCalls[i]); err != nil {
				return err
			}
		}
		reasoning := p.ReasoningContent
		if reasoning == "" {
			reasoning = p.Reasoning
		}
		if p.Content == "" && reasoning == "" {
			continue
		}
		if err := a.emit(agentbus.Chunk{Text: string(p.Content), Reasoning: string(reasoning)}); err != nil {
			return err
		}
	}
	return nil
}

// tool adds a piece of a tool call to its call. An id that is another than the
// one of its index, or a call without an index, begins a new call.
func (a *answer) tool(piece *toolCall) error {
	var t *tool
	switch {
	case piece.Index != nil:
		t = a.index[*piece.Index]
	case piece.ID == "" && len(a.tools) > 0:
		t = a.tools[len(a.tools)-1]
	}
	if t == nil || piece.ID != "" && t.id != "" && piece.ID != t.id {
		if len(a.tools) == maxTools {
			return a.malformed("the agent's answer calls too many tools", nil)
		}
		t = &tool{}
		a.tools = append(a.tools, t)
		if piece.Index != nil {
			if a.index == nil {
				a.index = make(map[int]*tool)
			}
			a.index[*piece.Index] = t
		}
	}
	if piece.ID != "" {
		t.id = piece.ID
	}
	if piece.Function.Name != "" {
		t.name = piece.Function.Name
	}
	t.arguments.WriteString(string(piece.Function.Arguments))
	return nil
}

// finish passes on what is known at the end of a good answer. Trailers are
// known only when the body was read to its end.
func (a *answer) finish(atEnd bool) error {
	for _, t := range a.tools {
		call := &agentbus.ToolCall{ID: t.id, Name: t.name, Arguments: cmp.Or(t.arguments.String(), "{}")}
		if err := a.emit(agentbus.Chunk{ToolCall: call}); err != nil {
			return err
		}
	}
	var trailer http.Header
	if atEnd {
		trailer = a.resp.Trailer
	}
	if cost, ok := charged(a.resp.Header, trailer); ok {
		if a.last.Usage == nil {
			a.last.Usage = &agentbus.Usage{}
		}
		a.last.Usage.Cost = cost
	}
	a.last.Replayed = len(a.resp.Header[headerReplay]) > 0
	return a.emit(a.last)
}

// fail ends an answer that failed. What it is known to have used is said first:
// a run's own budget counts failed attempts (R8).
func (a *answer) fail(err error) error {
	if a.last.Usage != nil && !errors.Is(err, errStopped) {
		if a.emit(agentbus.Chunk{Usage: a.last.Usage}) != nil {
			return errStopped
		}
	}
	return err
}
