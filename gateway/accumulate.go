package gateway

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// replaced are the keys of a chunk, and of what stands in it, whose last value
// holds; the text under any other key comes in pieces.
var replaced = map[string]bool{
	"id": true, "object": true, "created": true, "model": true, "system_fingerprint": true, "service_tier": true, "usage": true,
	"role": true, "type": true, "index": true, "finish_reason": true,
}

// pieces is text that grows.
type pieces struct{ strings.Builder }

// MarshalJSON returns the text as a string.
func (p *pieces) MarshalJSON() ([]byte, error) { return json.Marshal(p.String()) }

// accumulate adds the next chunk, or a part of it that stands under key, to
// what the chunks before came to: text grows, lists grow but for entries with
// the same index, which are one, and objects are added key by key.
func accumulate(key string, sum, next any) any {
	switch next := next.(type) {
	case nil:
		return sum
	case string:
		if replaced[key] {
			return next
		}
		p, ok := sum.(*pieces)
		if !ok {
			p = &pieces{}
		}
		p.WriteString(next)
		return p
	case map[string]any:
		m, ok := sum.(map[string]any)
		if !ok || replaced[key] {
			m = make(map[string]any, len(next))
		}
		for k, v := range next {
			m[k] = accumulate(k, m[k], v)
		}
		return m
	case []any:
		list, _ := sum.([]any)
		for _, v := range next {
			list = add(list, v)
		}
		return list
	}
	return next
}

// maxIndexed is how many entries of a list are told apart by their index; there
// are never so many choices or tool calls.
const maxIndexed = 1024

func add(list []any, v any) []any {
	if at := indexOf(v); at != "" && len(list) < maxIndexed {
		for i, known := range list {
			if indexOf(known) == at {
				list[i] = accumulate("", known, v)
				return list
			}
		}
	}
	return append(list, accumulate("", nil, v))
}

func indexOf(v any) json.Number {
	m, _ := v.(map[string]any)
	n, _ := m["index"].(json.Number)
	return n
}

// inOrder sorts entries by their index: a stream may begin with any of them, and
// clients take the first one of a whole answer for that of index 0.
func inOrder(list []any) {
	slices.SortStableFunc(list, func(a, b any) int {
		at, _ := indexOf(a).Int64()
		other, _ := indexOf(b).Int64()
		return cmp.Compare(at, other)
	})
}

// completionOf makes a chat completion of the sum of its chunks.
func completionOf(sum any) []byte {
	out, ok := sum.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	out["object"] = "chat.completion"
	choices, _ := out["choices"].([]any)
	if len(choices) == 0 {
		out["choices"] = []any{} // clients look into it
	}
	inOrder(choices)
	for _, c := range choices {
		choice, ok := c.(map[string]any)
		if !ok {
			continue
		}
		message, ok := choice["delta"].(map[string]any)
		if !ok {
			message = map[string]any{}
		}
		delete(choice, "delta")
		calls, _ := message["tool_calls"].([]any)
		inOrder(calls)
		for _, c := range calls {
			if c, ok := c.(map[string]any); ok {
				delete(c, "index") // which only a delta has
			}
		}
		message["role"] = "assistant"
		if _, told := message["content"]; !told {
			message["content"] = nil
		}
		if _, told := choice["finish_reason"]; !told {
			choice["finish_reason"] = nil
		}
		choice["message"] = message
	}
	b, _ := json.Marshal(out) // of values that came from JSON
	return b
}
