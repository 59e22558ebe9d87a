package gateway

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// A peek is what the gateway reads of a request body before it forwards the
// bytes as they came (G9).
type peek struct {
	model         string
	stream        bool
	conversation  string // the id of the conversation that a request of responses belongs to; "": none is named
	modelAt, over int    // where the value of model stands in the body: [modelAt, over); 0, 0 when it has none
	// figures are those of peeked that bound an answer; 0: the body has none.
	figures [len(peeked)]int64
}

// peeked are the keys that are read.
var peeked = [...]string{"model", "stream", "n", "max_tokens", "max_completion_tokens", "max_output_tokens", "conversation"}

// Where in peeked they stand.
const (
	peekedModel = iota
	peekedStream
	peekedN
	peekedMaxTokens
	peekedMaxCompletion
	peekedMaxOutput
	peekedConversation
)

// noFigure stands for a value that bounds nothing, or that two readers could
// read differently.
const noFigure = -1

// peekBody reads the top level of a JSON object. A body that is not one, and a
// key that is read here and stands there twice, or twice but for case, is
// CodeInvalidRequest: two readers could take it for two different requests.
func peekBody(body []byte) (p peek, err error) {
	if !rawjson.Valid(body) {
		return p, invalidRequest("the body is not valid JSON", "send a JSON object with model and messages")
	}
	i := rawjson.Space(body, 0)
	if body[i] != '{' {
		return p, invalidRequest("the body is not a JSON object", "send a JSON object with model and messages")
	}
	seen := [len(peeked)]bool{}
	for i = rawjson.Space(body, i+1); body[i] != '}'; {
		end := rawjson.Value(body, i)
		key := rawjson.Text(body[i:end])
		at := rawjson.Space(body, rawjson.Space(body, end)+1) // behind the colon
		over := rawjson.Value(body, at)
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
		if i = rawjson.Space(body, over); body[i] == ',' {
			i = rawjson.Space(body, i+1)
		}
	}
	return p, nil
}

func (p *peek) set(f int, body []byte, at, over int) error {
	v := body[at:over]
	switch {
	case f == peekedConversation:
		p.conversation = conversationID(v)
	case f > peekedStream:
		p.figures[f] = figure(v)
	case f == peekedModel && v[0] == '"':
		p.model, p.modelAt, p.over = rawjson.Text(v), at, over
	case f == peekedModel:
		return invalidRequest(`"model" is not a string`, `send the name of an agent as "model"`)
	case v[0] == 't' || v[0] == 'f' || v[0] == 'n':
		p.stream = v[0] == 't'
	default:
		return invalidRequest(`"stream" is not a boolean`, `send "stream": true or false`)
	}
	return nil
}

// conversationID reads the id of a conversation: a string, or an object that has it.
func conversationID(v []byte) (id string) {
	var object struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(v, &id) == nil {
		return id
	}
	_ = json.Unmarshal(v, &object) // what is neither names none
	return object.ID
}

// correlate tells the agent of the conversation that a request of responses names, as
// the session of its caller, who tells none by itself (K3).
func (x *exchange) correlate() {
	l := &x.lineage
	if id := x.peek.conversation; x.dialect == dialectResponses && x.inProcess == nil && id != "" && l.ParentContext == "" {
		l.ParentContext, l.RootContext = l.Contexts(id, false)
	}
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
	case dialectOther, dialectA2A:
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

func invalidRequest(message, next string) error {
	return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: message, Explain: &agentbus.Explain{Rule: "G9", Next: next}}
}
