package gateway

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
	"github.com/agentbus/agentbus/internal/sse"
)

// convert gives the caller the form it asked for when the agent answered in the
// other one: a stream for a whole answer, or the reverse (G15). Beside what is
// sent it returns the JSON object in which the agent tells its usage. An answer
// that is not one is a broken one. Any other dialect passes as it is.
func (a *answer) convert(body []byte, asStream bool, kept http.Header) (sent, told []byte, err error) {
	x := a.exchange
	if x.envelope != nil {
		return a.convertA2A(body, kept)
	}
	if x.dialect == dialectOther {
		return body, body, nil
	}
	if asStream { // pass took it for a whole answer, so none was asked for
		if body, err = x.whole(body); err != nil {
			return nil, nil, err
		}
		kept["Content-Type"] = []string{"application/json"}
		x.note("converted:stream")
	}
	if !rawjson.Valid(body) || !gjson.ParseBytes(body).IsObject() {
		return nil, nil, a.noObject(kept)
	}
	if _, told := kept["Content-Type"]; !told {
		kept["Content-Type"] = []string{"application/json"} // which it is, and clients look
	}
	if !x.peek.stream {
		return body, body, nil
	}
	switch {
	case isErrorBody(body):
		sent = toldError(body)
	case x.dialect == dialectResponses:
		sent = responseEvent(body)
	case gjson.GetBytes(body, "choices").IsArray():
		sent = toStream(body)
	default:
		return nil, nil, a.noObject(kept)
	}
	kept["Content-Type"] = []string{"text/event-stream"}
	x.note("converted:whole")
	return sent, body, nil
}

func (a *answer) noObject(kept http.Header) error {
	api, next := "its API", "check that the agent's url is the base of an OpenAI-compatible API, such as http://host/v1"
	if a.exchange.envelope != nil {
		api, next = "A2A", "check that the agent's url is the base below which its card is"
	}
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the agent's answer is not one of " + api + ": a JSON object, or a stream where one was asked for",
		Explain: &agentbus.Explain{Rule: "G15", Observed: plain(kept.Get("Content-Type"), 64), Next: next},
	}
}

// whole puts the answer to a request that asked for no stream together from the
// stream it got.
func (x *exchange) whole(stream []byte) ([]byte, error) {
	t := tap{dialect: x.dialect, redact: x.redact}
	t.feed(stream)
	if err := t.close(); err != nil {
		return nil, err
	}
	var sum any
	last := []byte(nil)
	for r := sse.NewReader(bytes.NewReader(stream), len(stream)); ; {
		e, err := r.Next()
		if e.Data == nil && err != nil {
			break
		}
		if x.dialect == dialectResponses {
			if v := gjson.GetBytes(e.Data, "response"); v.IsObject() {
				last = []byte(v.Raw) // that of the last event is whole
			}
			continue
		}
		if chunk, ok := decode(e.Data).(map[string]any); ok {
			sum = accumulate("", sum, chunk)
		}
	}
	if x.dialect == dialectResponses {
		return last, nil
	}
	return completionOf(sum), nil
}

// decode reads JSON without changing its numbers; nil when it is none.
func decode(data []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// toStream makes a stream of a whole chat completion: a chunk with the message
// of each choice, one with its end, the last of them with the usage.
func toStream(body []byte) []byte {
	head, _ := decode(body).(map[string]any)
	choices, _ := head["choices"].([]any)
	usage := head["usage"]
	delete(head, "usage")
	head["object"] = "chat.completion.chunk"
	var b bytes.Buffer
	write := func(choices ...any) {
		head["choices"] = append([]any{}, choices...)
		data, _ := json.Marshal(head) // of values that came from JSON
		b.WriteString("data: ")
		b.Write(data)
		b.WriteString("\n\n")
	}
	for i, c := range choices {
		choice, _ := c.(map[string]any)
		finish := choice["finish_reason"]
		begun := map[string]any{"index": i}
		maps.Copy(begun, choice)
		begun["delta"], begun["finish_reason"] = numbered(choice["message"]), nil
		delete(begun, "message")
		write(begun)
		if i == len(choices)-1 && usage != nil {
			head["usage"] = usage
		}
		write(map[string]any{"index": begun["index"], "delta": map[string]any{}, "finish_reason": finish})
	}
	if len(choices) == 0 && usage != nil {
		head["usage"] = usage
		write()
	}
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}

// numbered gives the tool calls of a message the index that those of a delta have.
func numbered(message any) any {
	m, _ := message.(map[string]any)
	calls, _ := m["tool_calls"].([]any)
	for i, c := range calls {
		if c, ok := c.(map[string]any); ok {
			c["index"] = i
		}
	}
	return message
}

// toldError makes a stream of an error that was told under status 200, which
// those who read streams take for an error.
func toldError(body []byte) []byte {
	var b bytes.Buffer
	b.WriteString("data: ")
	_ = json.Compact(&b, body) // it is valid JSON; one line
	b.WriteString("\n\n")
	return b.Bytes()
}

// responseEvent makes a stream of a whole response: the event that ends every
// stream of responses, and holds all of it.
func responseEvent(body []byte) []byte {
	kind := "response.completed"
	if gjson.GetBytes(body, "status").Str == "incomplete" {
		kind = "response.incomplete"
	}
	var b bytes.Buffer
	b.WriteString("event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"sequence_number\":0,\"response\":")
	_ = json.Compact(&b, body) // it is valid JSON; one line
	b.WriteString("}\n\n")
	return b.Bytes()
}
