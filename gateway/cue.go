package gateway

import (
	"encoding/json"

	"github.com/agentbus/agentbus/internal/rawjson"
)

// maxCue is more bytes than a cue adds to a body.
const maxCue = 256

// withCue returns a body of dialect d with a cue for the model before all that
// it is told (C9), and every other byte as it came: a system message, or
// instructions. A body that has no place for it comes back as it is.
func withCue(body []byte, d dialect, cue string) []byte {
	switch d {
	case dialectChat:
		at, _ := member(body, "messages")
		if at == 0 || body[at] != '[' {
			return body
		}
		first := rawjson.Space(body, at+1)
		told := `{"role":"system","content":` + quote(cue) + `}`
		if body[first] != ']' {
			told += ","
		}
		return splice(body, first, first, told)
	case dialectResponses:
		at, over := member(body, "instructions")
		switch {
		case at == 0:
			brace := rawjson.Space(body, 0)
			return splice(body, brace+1, brace+1, `"instructions":`+quote(cue)+`,`) // the object has a model
		case body[at] == '"':
			return splice(body, at, over, quote(cue+"\n\n"+rawjson.Text(body[at:over])))
		case body[at] == 'n':
			return splice(body, at, over, quote(cue))
		}
	case dialectOther, dialectA2A:
	}
	return body
}

// member returns where in an object of valid JSON the value of a key stands;
// 0, 0 when it has none. The last one counts, as most readers have it.
func member(body []byte, key string) (at, over int) {
	rawjson.Members(body, rawjson.Space(body, 0), func(m rawjson.Member) bool {
		if string(m.Key) == key {
			at, over = m.At, m.Over
		}
		return true
	})
	return at, over
}

func splice(body []byte, at, over int, text string) []byte {
	out := make([]byte, 0, len(body)+len(text))
	out = append(append(out, body[:at]...), text...)
	return append(out, body[over:]...)
}

func quote(s string) string {
	b, _ := json.Marshal(s) // a string always marshals
	return string(b)
}
