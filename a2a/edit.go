package a2a

import (
	"encoding/json"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// Set returns body with the value at a path of keys replaced, and every byte
// outside it as it came (A6). Objects that are missing on the way are made, also
// in place of null; a value of nil removes the member, if there is one. body is
// valid JSON and value too. It fails with CodeInvalidRequest when something on
// the way is no object. body itself is not changed.
func Set(body, value []byte, path ...string) ([]byte, error) {
	at := rawjson.Space(body, 0)
	return set(body, at, rawjson.Value(body, at), value, path)
}

// set edits the object that stands at body[at:over].
func set(body []byte, at, over int, value []byte, path []string) ([]byte, error) {
	switch {
	case body[at] == 'n' && value == nil:
		return body, nil
	case body[at] == 'n':
		return splice(body, at, over, append(append([]byte("{"), member(path, value)...), '}')), nil
	case body[at] != '{':
		return nil, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "the body has no object where " + path[0] + " belongs",
			Explain: &agentbus.Explain{Rule: "A6", Next: "send an object there, or nothing"},
		}
	}
	var found rawjson.Member
	n, before := 0, 0 // before: where the member before the found one ends
	rawjson.Members(body, at, func(m rawjson.Member) bool {
		if string(m.Key) == path[0] {
			found = m
		} else if found.Over == 0 {
			before = m.Over
		}
		n++
		return true
	})
	switch {
	case found.Over == 0 && value == nil:
		return body, nil
	case found.Over == 0:
		text := member(path, value)
		if n > 0 {
			text = append(text, ',')
		}
		return splice(body, at+1, at+1, text), nil
	case len(path) > 1:
		return set(body, found.At, found.Over, value, path[1:])
	case value != nil:
		return splice(body, found.At, found.Over, value), nil
	}
	from, to := found.From, found.Over
	if next := rawjson.Space(body, to); body[next] == ',' {
		to = rawjson.Space(body, next+1)
	} else if before > 0 {
		from = before // the comma behind the member before goes with it
	}
	return splice(body, from, to, nil), nil
}

// member returns "path[0]":{…value…}, with the objects that path names.
func member(path []string, value []byte) []byte {
	out, _ := json.Marshal(path[0]) // a string
	out = append(out, ':')
	if len(path) == 1 {
		return append(out, value...)
	}
	out = append(out, '{')
	return append(append(out, member(path[1:], value)...), '}')
}

func splice(b []byte, from, to int, with []byte) []byte {
	out := make([]byte, 0, len(b)-(to-from)+len(with))
	out = append(out, b[:from]...)
	out = append(out, with...)
	return append(out, b[to:]...)
}

// WithID returns a JSON-RPC answer with its id replaced by that of another
// request of the same call, as it came, and every other byte as it was. What has
// no id is returned as it is.
func WithID(answer, id []byte) []byte {
	if !rawjson.Valid(answer) {
		return answer
	}
	at := rawjson.Space(answer, 0)
	if answer[at] != '{' {
		return answer
	}
	out := answer
	rawjson.Members(answer, at, func(m rawjson.Member) bool {
		if string(m.Key) != "id" {
			return true
		}
		out = splice(answer, m.At, m.Over, id)
		return false
	})
	return out
}
