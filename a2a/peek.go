package a2a

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// A Call is what the gateway reads of an A2A request (A4). It changes none of
// its bytes.
type Call struct {
	Method
	Binding Binding
	Called  string // the JSON-RPC method as it was called; "" on REST
	ID      []byte // the JSON-RPC id as it stands in the body; nil: it has none
	// Varies is what is another each time that the same is asked, in the order of
	// the body: the id, and what metadata says of where the call stands.
	Varies []Span

	MessageID, ContextID string   // of the message; ContextID is also that of a list
	TaskID               string   // the task that the request names
	Webhook              bool     // the request asks the agent to call a URL (A17)
	WebhookURLs          []string // all that some reader could take for it
	HasMessage           bool     // there is a message to write metadata into
	HasMetadata          bool     // there is metadata, of the message or of the parameters

	paramID, paramTask string
	messageKey         string // under which the message stands; "": message
	message, params    Span   // where they stand in the body; the zero Span: there are none
}

// A Span is a part of a body, [At, Over).
type Span struct{ At, Over int }

// Peek reads the body of a request, once and without decoding it. method is
// that of the path on REST; on JSON-RPC the body names it. It fails with an
// *Error: CodeParse for what is no JSON, CodeInvalidRequest for a batch and for
// a key that is read here and stands there twice, or in another spelling: two
// readers could take it for two different requests. The Call is what was read
// until then.
func Peek(b Binding, method Method, body []byte) (c Call, err error) {
	c.Binding, c.Method = b, method
	if b == REST && len(bytes.TrimSpace(body)) == 0 {
		return c, nil
	}
	if !utf8.Valid(body) || !rawjson.Valid(body) {
		return c, invalid(CodeParse, "the body is not valid JSON in UTF-8", "send one JSON object")
	}
	at := rawjson.Space(body, 0)
	switch {
	case body[at] == '[':
		return c, invalid(CodeInvalidRequest, "batches are not served", "send one request at a time")
	case body[at] != '{':
		return c, invalid(CodeInvalidRequest, "the body is not a JSON object", "send one JSON object")
	}
	p := peeker{body: body, call: &c}
	if b == REST {
		p.params(at, len(body))
	} else {
		p.level(at, requestKeys, p.request)
	}
	if p.err == nil && b == JSONRPC && c.Called == "" {
		p.err = invalid(CodeInvalidRequest, "the request names no method", "send the name of a method")
	}
	c.TaskID = c.task()
	if p.err != nil {
		return c, p.err
	}
	return c, nil
}

// PeekID returns the JSON-RPC id of a body, as it came, for an answer to a
// request that was refused before it was read; nil when there is none.
func PeekID(body []byte) []byte {
	if !rawjson.Valid(body) {
		return nil
	}
	c := Call{}
	p := peeker{body: body, call: &c}
	if at := rawjson.Space(body, 0); body[at] == '{' {
		p.level(at, requestKeys[:1], p.request)
	}
	return c.ID
}

// task returns the id of the task that the request is about. On REST the path
// names that of all but sends.
func (c *Call) task() string {
	switch {
	case c.Operation.Executes(), c.Operation == OpCard, c.Operation == OpList, c.TaskID != "":
		return c.TaskID
	case c.Binding == REST:
		return c.TaskID
	case (c.Operation == OpPush || c.Operation == OpOther) && c.paramTask != "": // where id is that of something else
		return c.paramTask
	}
	if c.paramID != "" {
		return c.paramID
	}
	return c.paramTask
}

// A peeker reads one body.
type peeker struct {
	body []byte
	call *Call
	err  error
}

// The keys of each level that are read, each with its spelling in snake_case.
// Their order is that of the switches below.
var (
	requestKeys  = []names{{"id"}, {"method"}, {"params"}, {"jsonrpc"}}
	paramKeys    = []names{{"message"}, {"configuration"}, {"metadata"}, {"id"}, {"taskId", "task_id"}, {"contextId", "context_id"}, {"tenant"}, {"url"}, {"pushNotificationConfig", "push_notification_config"}, {"config"}}
	messageKeys  = []names{{"messageId", "message_id"}, {"contextId", "context_id"}, {"taskId", "task_id"}, {"metadata"}}
	configKeys   = []names{{"taskPushNotificationConfig", "task_push_notification_config"}, {"pushNotificationConfig", "push_notification_config"}, {"pushNotification", "push_notification"}}
	webhookKeys  = []names{{"url"}, {"pushNotificationConfig", "push_notification_config"}}
	metadataKeys = []names{{"mentionable"}, {MetadataKey}}
	lineageKeys  = metadataNames()

	// restKeys are paramKeys on REST: readers of 0.3 there read Protocol Buffers,
	// which take the name of a field for the name of its member too.
	restKeys = append([]names{{"message", "request"}}, paramKeys[1:]...)

	mentionableKeys = []names{{"agent_chain"}, {"recipient_capabilities"}, {"chain_token"}, {"identity_evidence"}, {"verifiable_credentials"}, {"policy"}, {"policy_resolution"}}
	chainKeys       = []names{{"hop"}, {"max_hops"}, {"is_final"}}
	capabilityKeys  = []names{{"mention_relay"}, {"agent_chain"}}
	relayKeys       = []names{{"kind"}}
)

// names are the spellings of one key.
type names []string

// level reads an object: use is told each member whose key is read there, by
// its index in keys.
func (p *peeker) level(at int, keys []names, use func(key int, m rawjson.Member)) {
	seen := 0
	rawjson.Members(p.body, at, func(m rawjson.Member) bool {
		key, exact := find(keys, m.Key)
		switch {
		case key < 0:
		case !exact:
			p.err = invalid(CodeInvalidRequest, "a key of the body is "+keys[key][0]+" but for its case", "send "+keys[key][0])
		case seen>>key&1 == 1:
			p.err = invalid(CodeInvalidRequest, "the key "+keys[key][0]+" stands twice in the body", "send it once")
		default:
			seen |= 1 << key
			use(key, m)
		}
		return p.err == nil
	})
}

// maxKey is the longest key that can be one of those that are read, with
// characters that fold to shorter ones.
const maxKey = 96

// find returns which of keys a key is to some reader, and whether it is so to
// every reader; -1: none.
func find(keys []names, key []byte) (at int, exact bool) {
	if len(key) > maxKey {
		return -1, false
	}
	for i, spellings := range keys {
		if slices.Contains(spellings, string(key)) {
			return i, true
		}
	}
	var room [maxKey]byte
	folded, ascii := room[:0], true
	for _, c := range key {
		if ascii = ascii && c < utf8.RuneSelf; c != '_' && c != '-' {
			folded = append(folded, lower(c))
		}
	}
	for i, spellings := range keys {
		for _, name := range spellings {
			if ascii && equalBare(folded, name) || !ascii && equalFolded(folded, name) {
				return i, false
			}
		}
	}
	return -1, false
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// equalBare reports whether folded, which is in lower case and in ASCII, is name
// but for its case and for what joins its words. Nearly every key of a request
// differs from nearly every name in its first letter.
func equalBare(folded []byte, name string) bool {
	at := 0
	for i := range len(name) {
		if c := name[i]; c != '_' && c != '-' {
			if at == len(folded) || folded[at] != lower(c) {
				return false
			}
			at++
		}
	}
	return at == len(folded)
}

// equalFolded is equalBare for what has letters that fold to those of ASCII.
func equalFolded(folded []byte, name string) bool {
	var room [maxKey]byte
	bare := room[:0]
	for i := range len(name) {
		if name[i] != '_' && name[i] != '-' {
			bare = append(bare, name[i])
		}
	}
	return bytes.EqualFold(folded, bare)
}

func (p *peeker) request(key int, m rawjson.Member) {
	value := p.body[m.At:m.Over]
	switch key {
	case 0:
		if c := value[0]; c == '{' || c == '[' || c == 't' || c == 'f' {
			p.err = invalid(CodeInvalidRequest, "the id is neither a string nor a number", "send a string as id")
			return
		}
		p.call.ID, p.call.Varies = value, append(p.call.Varies, Span{m.At, m.Over})
	case 1:
		if p.call.Called = p.text("method", m); p.err == nil {
			p.call.Method = MethodOf(p.call.Called)
		}
	case 2:
		p.params(m.At, m.Over)
	}
}

// params reads the parameters of a method, which are the body on REST.
func (p *peeker) params(at, over int) {
	if p.call.params = (Span{at, over}); p.body[at] != '{' {
		return
	}
	keys := paramKeys
	if p.call.Binding == REST {
		keys = restKeys
	}
	p.level(at, keys, func(key int, m rawjson.Member) {
		switch key {
		case 0:
			if string(m.Key) == "request" {
				p.call.messageKey = "request"
			}
			p.message(m)
		case 1:
			p.object(m, configKeys, func(_ int, m rawjson.Member) { p.webhook(m) })
		case 2:
			p.metadata(m)
		case 3:
			p.call.paramID = p.text("id", m)
		case 4:
			p.call.paramTask = p.text("taskId", m)
		case 5:
			if p.call.ContextID == "" {
				p.call.ContextID = p.text("contextId", m)
			}
		case 7: // of A2A 1.0, whose configuration is the parameters themselves
			p.webhookURL(m)
		case 8: // of A2A 0.3
			p.webhook(m)
		case 9: // of drafts of A2A 1.0, for the one method that stores it
			p.webhookURLs(m)
		}
	})
}

func (p *peeker) message(m rawjson.Member) {
	p.call.HasMessage, p.call.message = p.body[m.At] == '{', Span{m.At, m.Over}
	p.object(m, messageKeys, func(key int, m rawjson.Member) {
		switch key {
		case 0:
			p.call.MessageID = p.text("messageId", m)
		case 1:
			p.call.ContextID = p.text("contextId", m)
		case 2:
			p.call.TaskID = p.text("taskId", m)
		case 3:
			p.metadata(m)
		}
	})
}

func (p *peeker) webhook(m rawjson.Member) {
	if p.body[m.At] == 'n' {
		return // null
	}
	p.call.Webhook = true
	p.webhookURLs(m)
}

// webhookURLs reads where a webhook is, one level down too, as drafts had it.
func (p *peeker) webhookURLs(m rawjson.Member) {
	p.object(m, webhookKeys, func(key int, m rawjson.Member) {
		if key == 0 {
			p.webhookURL(m)
			return
		}
		p.object(m, webhookKeys[:1], func(_ int, m rawjson.Member) { p.webhookURL(m) })
	})
}

func (p *peeker) webhookURL(m rawjson.Member) {
	p.call.WebhookURLs = append(p.call.WebhookURLs, p.text("url", m))
}

// metadata looks for twins of the keys that chains, policies and lineages are
// read from.
func (p *peeker) metadata(m rawjson.Member) {
	p.call.HasMetadata = true
	p.object(m, metadataKeys, func(key int, m rawjson.Member) {
		if key == 1 {
			p.place(m, lineageKeys)
			return
		}
		p.object(m, mentionableKeys, func(key int, m rawjson.Member) {
			switch key {
			case 0:
				p.place(m, chainKeys)
			case 1:
				p.object(m, capabilityKeys, func(key int, m rawjson.Member) {
					if key == 1 {
						p.place(m, chainKeys)
						return
					}
					p.object(m, relayKeys, func(int, rawjson.Member) {})
				})
			}
		})
	})
}

// place reads what says where the call stands.
func (p *peeker) place(m rawjson.Member, keys []names) {
	p.call.Varies = append(p.call.Varies, Span{m.At, m.Over})
	p.object(m, keys, func(int, rawjson.Member) {})
}

// object reads a level that may be something else.
func (p *peeker) object(m rawjson.Member, keys []names, use func(int, rawjson.Member)) {
	if p.body[m.At] == '{' {
		p.level(m.At, keys, use)
	}
}

// text reads a string. Anything else but null is refused: a reader could make a
// string of it.
func (p *peeker) text(name string, m rawjson.Member) string {
	switch v := p.body[m.At:m.Over]; v[0] {
	case '"':
		return rawjson.Text(v)
	case 'n':
	default:
		if p.err == nil {
			code := CodeInvalidParams
			if name == "method" { // a parameter of none: the request is no request
				code = CodeInvalidRequest
			}
			p.err = invalid(code, name+" is not a string", "send "+name+" as a string")
		}
	}
	return ""
}

func invalid(code int, message, next string) *Error {
	return Standard(code, "", &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: message, Explain: &agentbus.Explain{Rule: "A4", Next: next},
	})
}
