package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
)

// convert gives the caller the form it asked for when the agent answered a
// chat completion in the other one: a stream for a whole answer, or the reverse
// (G15). An answer that is not JSON is a broken one. Any other dialect passes
// as it is.
func (a *answer) convert(body []byte, sse bool, kept http.Header) ([]byte, error) {
	x := a.exchange
	if x.dialect == dialectOther {
		return body, nil
	}
	var err error
	if sse { // pass took it for a whole answer, so none was asked for
		if body, err = x.whole(body); err != nil {
			return nil, err
		}
		kept["Content-Type"] = []string{"application/json"}
		x.note("converted:stream")
	}
	if !json.Valid(body) || !gjson.ParseBytes(body).IsObject() {
		return nil, &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: "the agent's answer is not a JSON object",
			Explain: &agentbus.Explain{Rule: "G15", Observed: plain(kept.Get("Content-Type"), 64), Next: "check that the agent's url is the base of an OpenAI-compatible API, such as http://host/v1"},
		}
	}
	if x.peek.stream && x.dialect == dialectChat && !isErrorBody(body) {
		body = toStream(body)
		kept["Content-Type"] = []string{"text/event-stream"}
		x.note("converted:whole")
	}
	return body, nil
}

// whole puts the answer to a request that asked for no stream together from the
// stream it got.
func (x *exchange) whole(stream []byte) ([]byte, error) {
	t := tap{dialect: x.dialect}
	var events [][]byte
	for block := range bytes.SplitSeq(append(normalLines(stream), '\n'), []byte("\n\n")) {
		t.feed(append(block, "\n\n"...))
		if data := eventData(block); data != nil {
			events = append(events, data)
		}
	}
	if err := t.close(); err != nil {
		return nil, err
	}
	if x.dialect == dialectResponses {
		return []byte(gjson.GetBytes(t.usage, "response").Raw), nil // the last event holds the whole response
	}
	return fold(events), nil
}

func normalLines(b []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
}

func eventData(block []byte) []byte {
	var data []byte
	for line := range bytes.SplitSeq(block, []byte("\n")) {
		if v, ok := bytes.CutPrefix(line, dataField); ok {
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(v, []byte(" "))...)
		}
	}
	return data
}

// fold makes one chat completion of its chunks.
func fold(events [][]byte) []byte {
	var content strings.Builder
	finish, usage, calls := any(nil), any(nil), map[int64]map[string]any{}
	out := map[string]any{"object": "chat.completion"}
	for _, e := range events {
		v := gjson.ParseBytes(e)
		for _, k := range [...]string{"id", "created", "model"} {
			if f := v.Get(k); f.Exists() && out[k] == nil {
				out[k] = f.Value()
			}
		}
		if u := v.Get("usage"); u.IsObject() {
			usage = u.Value()
		}
		choice := v.Get("choices.0")
		content.WriteString(choice.Get("delta.content").String())
		if f := choice.Get("finish_reason"); f.Type == gjson.String {
			finish = f.Str
		}
		choice.Get("delta.tool_calls").ForEach(func(_, part gjson.Result) bool {
			foldToolCall(calls, part)
			return true
		})
	}
	message := map[string]any{"role": "assistant", "content": content.String()}
	if len(calls) > 0 {
		list := make([]any, 0, len(calls))
		for i := int64(0); len(list) < len(calls) && i < 1024; i++ {
			if c, ok := calls[i]; ok {
				list = append(list, c)
			}
		}
		message["tool_calls"] = list
	}
	out["choices"] = []any{map[string]any{"index": 0, "message": message, "finish_reason": finish}}
	if usage != nil {
		out["usage"] = usage
	}
	b, _ := json.Marshal(out) // of values that came from JSON
	return b
}

func foldToolCall(calls map[int64]map[string]any, part gjson.Result) {
	i := part.Get("index").Int()
	c, ok := calls[i]
	if !ok {
		c = map[string]any{"type": "function", "function": map[string]any{"name": "", "arguments": ""}}
		calls[i] = c
	}
	if id := part.Get("id"); id.Exists() {
		c["id"] = id.Str
	}
	f, _ := c["function"].(map[string]any)
	for _, k := range [...]string{"name", "arguments"} {
		so, _ := f[k].(string)
		f[k] = so + part.Get("function."+k).String()
	}
}

// toStream makes a stream of a whole chat completion: one chunk with the
// message, one with the end and the usage.
func toStream(body []byte) []byte {
	v := gjson.ParseBytes(body)
	head := map[string]any{"object": "chat.completion.chunk"}
	for _, k := range [...]string{"id", "created", "model"} {
		head[k] = v.Get(k).Value()
	}
	var b bytes.Buffer
	chunk := func(delta, finish any, usage gjson.Result) {
		head["choices"] = []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}
		if usage.IsObject() {
			head["usage"] = usage.Value()
		}
		data, _ := json.Marshal(head) // of values that came from JSON
		b.WriteString("data: ")
		b.Write(data)
		b.WriteString("\n\n")
	}
	delta, _ := v.Get("choices.0.message").Value().(map[string]any)
	if calls, ok := delta["tool_calls"].([]any); ok {
		for i, c := range calls {
			if c, ok := c.(map[string]any); ok {
				c["index"] = i
			}
		}
	}
	chunk(delta, nil, gjson.Result{})
	chunk(map[string]any{}, v.Get("choices.0.finish_reason").Value(), v.Get("usage"))
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}
