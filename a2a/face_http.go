package a2a

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/a2aproject/a2a-go/v2/log"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// maxBody is the most of a request that is read, should nobody before have
// bounded it.
const maxBody = 64 << 20

// An exchange is one request at a face. The SDK writes what goes well; what goes
// wrong is written here, since the SDK has no codes of ours, writes errors of
// streams as events, and some others as what they are not (A16, A29).
type exchange struct {
	http.ResponseWriter
	binding Binding
	kind    string // Content-Type of an answer that is no stream
	id      []byte // of the JSON-RPC request, as it came
	streams bool
	whole   bool            // an error before the stream is a whole answer (A14)
	params  json.RawMessage // as they came
	digest  agentbus.Digest // of the parameters without their configuration (A19)

	failure atomic.Pointer[error] // set by whoever serves the operation
	status  int                   // the SDK wrote
	wrote   bool                  // an answer is on its way
	body    bytes.Buffer          // of what is no stream
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// failed notes the error that ends an operation, and returns it for the SDK.
func failed(ctx context.Context, err error) error {
	if x := exchangeOf(ctx); x != nil {
		x.failure.CompareAndSwap(nil, &err)
	}
	return err
}

// WriteHeader notes the status.
func (x *exchange) WriteHeader(status int) { x.status = status }

// Write keeps what is no stream until it is known to be an answer.
func (x *exchange) Write(b []byte) (int, error) {
	if x.failure.Load() != nil {
		return len(b), nil // finish says it
	}
	if !x.streams {
		return x.body.Write(b)
	}
	x.head()
	return x.ResponseWriter.Write(b) //nolint:wrapcheck // the SDK looks at it
}

// head begins a stream.
func (x *exchange) head() {
	if x.wrote {
		return
	}
	x.wrote = true
	h := x.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Del("Connection")
	x.ResponseWriter.WriteHeader(http.StatusOK)
}

// Flush is what the SDK asks of a writer that streams.
func (x *exchange) Flush() {
	if x.wrote {
		_ = http.NewResponseController(x.ResponseWriter).Flush() // a writer that cannot has nothing to flush
	}
}

// finish writes what the SDK has not: an answer that is no stream, or what went
// wrong, before a stream (A29) or in it.
func (x *exchange) finish() {
	failure := x.failure.Load()
	switch {
	case failure == nil && x.streams && x.wrote:
	case failure == nil && x.streams: // the SDK could not read the request
		WriteError(x.ResponseWriter, x.binding, x.id, fault(CodeInvalidParams, "", "the parameters cannot be read", "send what A2A 1.0 says of this method"))
	case failure == nil:
		x.answer()
	case x.wrote:
		_, _ = x.ResponseWriter.Write(ErrorOf(*failure).Event(x.binding, x.id)) // whoever left is not told
		x.Flush()
	case x.streams && !x.whole && x.binding == JSONRPC && ErrorOf(*failure).HTTPStatus(JSONRPC) == http.StatusOK:
		x.head()
		_, _ = x.ResponseWriter.Write(ErrorOf(*failure).Event(x.binding, x.id)) // as above
		x.Flush()
	default:
		WriteError(x.ResponseWriter, x.binding, x.id, *failure)
	}
}

// answer writes an answer of the SDK that is no stream.
func (x *exchange) answer() {
	h := x.Header()
	body := x.body.Bytes()
	if e, told := ReadError(body); told || x.status == http.StatusNotFound || x.status == http.StatusMethodNotAllowed {
		switch {
		case !told || e.Code == CodeMethodNotFound:
			e = fault(CodeMethodNotFound, "", "there is no such method", "call one of A2A 1.0")
		case e.Code == CodeInternal || e.Code == CodeServer || e.Code == CodeParse: // the SDK could not read it
			e = fault(CodeInvalidParams, "", "the parameters cannot be read", "send what A2A 1.0 says of this method")
		default:
			e = fault(e.Code, "", plain(e.Message), "send what A2A 1.0 says of this method")
		}
		WriteError(x.ResponseWriter, x.binding, x.id, e)
		return
	}
	h.Set("Content-Type", x.kind)
	h.Set("Cache-Control", "no-store")
	if x.status != 0 {
		x.ResponseWriter.WriteHeader(x.status)
	}
	_, _ = x.ResponseWriter.Write(body) // a caller that left is not told
}

// ServeHTTP serves a request that the gateway has let in: at the agent's mount,
// JSON-RPC; below /rest, HTTP+JSON; the card. Each with a slash at its end or
// without (A28).
func (f *Face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, ok := FromContext(r.Context())
	if !ok {
		WriteError(w, REST, nil, errNoCaller)
		return
	}
	_, below, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/a2a/"), "/")
	below = "/" + strings.TrimRight(below, "/")
	x := &exchange{ResponseWriter: w, binding: JSONRPC}
	if below != "/" {
		x.binding = REST
	}
	s, ok := f.config.Agent(req.Agent)
	if !ok {
		WriteError(w, x.binding, nil, errNoAgent)
		return
	}
	if below == CardPath {
		f.serveCard(w, r, req, &s)
		return
	}
	rest, isREST := strings.CutPrefix(below, "/rest")
	if !isREST && below != "/" {
		WriteError(w, REST, nil, fault(CodeMethodNotFound, "", "there is nothing at this path", "POST JSON-RPC to the agent's mount, or call HTTP+JSON below /rest"))
		return
	}
	in, old, err := f.read(x, r, &s, rest)
	if err != nil {
		WriteError(w, x.binding, x.id, err)
		return
	}
	f.echo(w, in)
	h := f.rpc
	switch {
	case isREST && old:
		h = f.rest03
	case isREST:
		h = f.rest
	case old:
		h = f.rpc03
	}
	h.ServeHTTP(x, in)
	x.finish()
}

// read reads the head and the body of a request, and returns it as the SDK is to
// see it.
func (f *Face) read(x *exchange, r *http.Request, s *Served, rest string) (in *http.Request, old bool, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, false, &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "the request body could not be read to its end", Err: err}
	}
	method, params := rest, json.RawMessage(body)
	var call map[string]json.RawMessage // of JSON-RPC
	if x.binding == JSONRPC {
		x.id, method, params = PeekID(body), "", nil
		if json.Unmarshal(body, &call) == nil {
			_ = json.Unmarshal(call["method"], &method) // the SDK refuses what is no name
			params = call["params"]
		}
	}
	if old, err = version(r, s.Compat); err != nil {
		return nil, old, err
	}
	x.kind = "application/json"
	if !old {
		if x.binding == REST {
			x.kind = kindOf(r)
			body = camel(body)
			params = body
		} else {
			body, params = respelled(body, call, method, params)
		}
	}
	if !old && asksNoPage(x.binding, method, params, r.URL.Query()) {
		return nil, old, errPage
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Method == http.MethodPost && len(body) > 0 && r.Header.Get("Content-Type") != "" &&
		(err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json")) { // A29
		return nil, old, fault(CodeContentTypeNotSupported, "", "the body is not JSON by its Content-Type", "send application/json")
	}
	x.streams, x.whole = streamed(method), TakesWholeError(r)
	x.params, x.digest = params, asked(params)
	ctx := context.WithValue(log.AttachLogger(r.Context(), slog.New(slog.DiscardHandler)), exchangeKey{}, x)
	in = r.Clone(ctx)
	in.Body, in.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if x.binding == REST {
		plain, err := url.PathUnescape(rest)
		if err != nil {
			return nil, old, fault(CodeInvalidParams, "", "the path cannot be read", "escape it as URLs are")
		}
		in.URL = &url.URL{Path: plain, RawPath: rest, RawQuery: r.URL.RawQuery}
	}
	for _, name := range [...]string{"A2a-Extensions", "X-A2a-Extensions"} { // the SDK matches whole lines (A28)
		if lines := r.Header[name]; len(lines) > 0 {
			in.Header[name] = split(lines)
		}
	}
	return in, old, nil
}

// kindOf returns as what a caller of HTTP+JSON reads an answer: as A2A 1.0 names it
// where the caller does, and does not like plain JSON better.
func kindOf(r *http.Request) string {
	const named, plain = "application/a2a+json", "application/json"
	if httpx.Prefers(r.Header, named, plain) {
		return named
	}
	return plain
}

// respelled returns a call of JSON-RPC and its parameters with the names that the SDK reads, and
// with parameters where a method needs none: it reads none where there are none.
func respelled(body []byte, call map[string]json.RawMessage, method string, params json.RawMessage) ([]byte, json.RawMessage) {
	told := camel(params)
	if len(told) == 0 && (method == "ListTasks" || method == "GetExtendedAgentCard") {
		told = json.RawMessage("{}")
	}
	if call == nil || bytes.Equal(told, params) {
		return body, params
	}
	call["params"] = told
	return written(call, body), told
}

// asksNoPage reports whether a list of no tasks a page is asked for, which the SDK
// does not tell from one of as many as there are by default.
func asksNoPage(b Binding, method string, params json.RawMessage, query url.Values) bool {
	if b == REST {
		return query.Get("pageSize") == "0" && strings.HasSuffix(method, "/tasks")
	}
	size := gjson.GetBytes(params, "pageSize")
	return method == "ListTasks" && size.Type == gjson.Number && size.Num == 0
}

// streamed reports whether a method, or the path of one, streams, in either
// version.
func streamed(method string) bool {
	switch method {
	case "SendStreamingMessage", "SubscribeToTask", "message/stream", "tasks/resubscribe":
		return true
	}
	return strings.HasSuffix(method, "/message:stream") || strings.HasSuffix(method, ":subscribe")
}

func split(lines []string) (list []string) {
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			if one = strings.TrimSpace(one); one != "" {
				list = append(list, one)
			}
		}
	}
	return list
}

// echo tells which of the extensions that were asked for are active, before the
// first byte (A28).
func (f *Face) echo(w http.ResponseWriter, r *http.Request) {
	var active []string
	for _, uri := range r.Header["A2a-Extensions"] {
		if slices.Contains(f.config.Extensions, uri) && !slices.Contains(active, uri) {
			active = append(active, uri)
		}
	}
	if len(active) > 0 {
		w.Header()["A2a-Extensions"] = []string{strings.Join(active, ", ")}
	}
}

// version tells A2A 0.3 from 1.0, and refuses what is neither (A26): by the
// header, or by a query parameter, once.
func version(r *http.Request, compat bool) (old bool, err error) {
	said := append(slices.Clone(r.Header["A2a-Version"]), r.URL.Query()["A2A-Version"]...)
	if len(said) > 1 {
		return false, fault(CodeInvalidParams, "", "A2A-Version is there twice", "send it once, as a header or in the query")
	}
	v := ""
	if len(said) == 1 {
		v = strings.TrimSpace(said[0])
	}
	switch {
	case strings.Contains(v, ","):
		return false, fault(CodeInvalidParams, "", "A2A-Version has two values", "send one")
	case isVersion1(v):
		return false, nil
	case compat && (v == "" || v == "0.3" || strings.HasPrefix(v, "0.3.")):
		return true, nil
	}
	return false, Standard(CodeVersionNotSupported, "", &agentbus.Error{
		Code: agentbus.CodeUnsupportedVersion, Message: "this version of A2A is not served",
		Explain: &agentbus.Explain{Rule: "A26", Observed: plain(v), Supported: []string{"1.0"}, Next: "send A2A-Version: 1.0"},
	})
}

// asked returns the digest of the parameters of a message (A19): of their JSON in
// one form, with sorted keys and without the configuration, which says how to
// answer and not what.
func asked(params json.RawMessage) agentbus.Digest {
	var v map[string]any
	if json.Unmarshal(params, &v) != nil {
		return sha256.Sum256(params)
	}
	delete(v, "configuration")
	raw, err := oneLine(v)
	if err != nil {
		return sha256.Sum256(params)
	}
	return sha256.Sum256(raw)
}
