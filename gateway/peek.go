package gateway

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// A peek is what the gateway reads of a request body before it forwards the
// bytes as they came (G9).
type peek struct {
	model         string
	stream        bool
	modelAt, over int // where the value of model stands in the body: [modelAt, over); 0, 0 when it has none
	// figures are those of peeked that bound an answer; 0: the body has none.
	figures [len(peeked)]int64
}

// peeked are the keys that are read.
var peeked = [...]string{"model", "stream", "n", "max_tokens", "max_completion_tokens", "max_output_tokens"}

// Where in peeked they stand.
const (
	peekedModel = iota
	peekedStream
	peekedN
	peekedMaxTokens
	peekedMaxCompletion
	peekedMaxOutput
)

// noFigure stands for a value that bounds nothing, or that two readers could
// read differently.
const noFigure = -1

// peekBody reads the top level of a JSON object. A body that is not one, and a
// key that is read here and stands there twice, or twice but for case, is
// CodeInvalidRequest: two readers could take it for two different requests.
func peekBody(body []byte) (p peek, err error) {
	if !json.Valid(body) {
		return p, invalidRequest("the body is not valid JSON", "send a JSON object with model and messages")
	}
	i := skipSpace(body, 0)
	if body[i] != '{' {
		return p, invalidRequest("the body is not a JSON object", "send a JSON object with model and messages")
	}
	seen := [len(peeked)]bool{}
	for i = skipSpace(body, i+1); body[i] != '}'; {
		end := skipValue(body, i)
		key := unquote(body[i:end])
		at := skipSpace(body, skipSpace(body, end)+1) // behind the colon
		over := skipValue(body, at)
		for f, name := range peeked {
			if len(key) != len(name) || !strings.EqualFold(key, name) {
				continue
			}
			if seen[f] {
				return p, invalidRequest(`the key "`+name+`" stands twice in the body`, `send "`+name+`" once`)
			}
			seen[f] = true
			if key != name {
				p.figures[f] = noFigure // to some readers it is the key
			} else if err := p.set(f, body, at, over); err != nil {
				return p, err
			}
		}
		if i = skipSpace(body, over); body[i] == ',' {
			i = skipSpace(body, i+1)
		}
	}
	return p, nil
}

func (p *peek) set(f int, body []byte, at, over int) error {
	v := body[at:over]
	switch {
	case f > peekedStream:
		p.figures[f] = figure(v)
	case f == peekedModel && v[0] == '"':
		p.model, p.modelAt, p.over = unquote(v), at, over
	case f == peekedModel:
		return invalidRequest(`"model" is not a string`, `send the name of an agent as "model"`)
	case v[0] == 't' || v[0] == 'f' || v[0] == 'n':
		p.stream = v[0] == 't'
	default:
		return invalidRequest(`"stream" is not a boolean`, `send "stream": true or false`)
	}
	return nil
}

// figure reads a count: a whole number above 0, or null, which is none.
func figure(v []byte) int64 {
	if v[0] == 'n' {
		return 0
	}
	n, err := strconv.ParseInt(string(v), 10, 32)
	if err != nil || n < 1 {
		return noFigure
	}
	return n
}

// mostOutput returns the most output tokens that the request allows an answer of
// dialect d, over all the answers it asks for; known: it names a bound.
func (p *peek) mostOutput(d dialect) (tokens int64, known bool) {
	n, most := p.figures[peekedN], int64(0)
	switch d {
	case dialectChat:
		a, b := p.figures[peekedMaxTokens], p.figures[peekedMaxCompletion]
		if most = max(a, b); min(a, b) == noFigure {
			most = noFigure
		}
	case dialectResponses:
		most = p.figures[peekedMaxOutput]
	case dialectOther:
	}
	if n == noFigure || most < 1 {
		return 0, false
	}
	return max(n, 1) * most, true
}

// withModel returns body with its model replaced, and every other byte as it came.
func (p *peek) withModel(body []byte, model string) []byte {
	if p.over == 0 || model == "" {
		return body
	}
	out := make([]byte, 0, len(body)+len(model))
	out = append(out, body[:p.modelAt]...)
	out = strconv.AppendQuote(out, model) // names of models are plain; see the configuration
	return append(out, body[p.over:]...)
}

// skipSpace, skipValue and unquote walk JSON that is known to be valid.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

func skipValue(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = endOfString(b, i); depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i // the scalar before it ends with its container
			}
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// endOfString returns where the string that begins at b[i] has its last quote.
func endOfString(b []byte, i int) int {
	for i++; ; i++ {
		j := bytes.IndexAny(b[i:], `"\`)
		if i += j; b[i] == '"' {
			return i
		}
		i++ // past what is escaped
	}
}

func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // a string of valid JSON
	return s
}

func invalidRequest(message, next string) error {
	return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: message, Explain: &agentbus.Explain{Rule: "G9", Next: next}}
}
