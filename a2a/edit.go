package a2a

import (
	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// Set returns body with the value at a path of keys replaced, and every byte
// outside it as it came (A6). Objects that are missing on the way are made, also
// in place of null; a value of nil removes the member, if there is one. body is
// valid JSON and value too. It fails with CodeInvalidRequest when something on
// the way is no object. body itself is not changed.
func Set(body, value []byte, path ...string) ([]byte, error) {
	return set(body, rawjson.Space(body, 0), value, path)
}

// SetMetadata is [Set] for a member of the metadata of the request that [Peek] has
// read: it does not look for the message again. body is as it was read.
func (c *Call) SetMetadata(body, value []byte, key string) ([]byte, error) {
	if !c.HasMessage {
		return Set(body, value, c.MetadataPath(key)...)
	}
	return set(body, c.message.At, value, []string{"metadata", key})
}

// set edits the object that begins at body[at].
func set(body []byte, at int, value []byte, path []string) ([]byte, error) {
	switch {
	case body[at] == 'n' && value == nil:
		return body, nil
	case body[at] == 'n':
		return splice(body, at, at+len("null"), append(appendMember([]byte{'{'}, value, path), '}')), nil
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
		out := make([]byte, 0, len(body)+len(value)+roomOfKey*len(path))
		out = appendMember(append(out, body[:at+1]...), value, path)
		if n > 0 {
			out = append(out, ',')
		}
		return append(out, body[at+1:]...), nil
	case len(path) > 1:
		return set(body, found.At, value, path[1:])
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

// roomOfKey is what a key of ours and what stands around it take, and more.
const roomOfKey = 24

// appendMember appends "path[0]":{…value…}, with the objects that path names.
func appendMember(b, value []byte, path []string) []byte {
	b = append(rawjson.AppendText(b, path[0]), ':')
	if len(path) == 1 {
		return append(b, value...)
	}
	return append(appendMember(append(b, '{'), value, path[1:]), '}')
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
