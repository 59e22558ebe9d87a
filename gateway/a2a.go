package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/httpx"
)

// a2aPrefix is where the agents' A2A mounts begin (A3): /a2a/{name} for
// JSON-RPC, /a2a/{name}/rest for HTTP+JSON, and the card below the first.
const a2aPrefix = "/a2a/"

const (
	restMount = "/rest"
	cardPath  = "/.well-known/agent-card.json"
	oldPath   = "/.well-known/agent.json" // of the card before A2A 0.3, which clients of that ask still
)

// asNow returns the request of a card by its former path as one by its path now (A3).
func asNow(r *http.Request) *http.Request {
	path := r.URL.EscapedPath()
	mount, ok := strings.CutSuffix(strings.TrimRight(path, "/"), oldPath)
	if !ok || mount != "" && !strings.HasPrefix(mount, a2aPrefix) {
		return r
	}
	u := *r.URL
	u.Path, u.RawPath = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), oldPath)+cardPath, ""
	if r.URL.RawPath != "" {
		u.RawPath = mount + cardPath
	}
	now := *r
	now.URL = &u
	return &now
}

// An A2AConfig is what the gateway's A2A surface is made of.
type A2AConfig struct {
	DefaultAgent string // whose card the root serves (A3); "": nobody's
	Compat       bool   // clients of 0.3 are served: cards stand at their former path too
	// PublicURL is what cards name in place of the scheme and the host of the
	// request, without a slash at its end; "": these (A10).
	PublicURL string
	// TrustedProxies may say by X-Forwarded-Proto and X-Forwarded-Host what the
	// caller asked for; nobody else is believed (A10).
	TrustedProxies []netip.Prefix
	// Tasks remember where the tasks of A2A agents are, and whose (A12); nil:
	// only this process does. The Ledger remembers those that it settles in the
	// same place.
	Tasks RemoteTasks
	// Edit is shown each request before it is counted, with its body, and returns
	// the body to go on with: it may add and remove metadata, and complete the
	// lineage that the agent is told. Its errors refuse the request. nil: nobody
	// looks. It is safe for concurrent use.
	Edit func(ctx context.Context, r *a2a.Request, c *a2a.Call, body []byte) ([]byte, error)
	// Webhook judges a URL that a caller wants an agent to call, where the agent
	// may (A17); nil: all are refused.
	Webhook   func(ctx context.Context, url string) error
	KeepAlive time.Duration // between two comments on a silent stream (A11); 0: 15 s
}

// An A2AAgent is how an agent is called that speaks A2A. Its URL or URLs are the
// bases of the agent: below them is its card, which names its endpoints.
type A2AAgent struct {
	// DefaultVersion is the A2A version that the agent is told when the caller
	// names none; "": none either (A8).
	DefaultVersion string
	// DedupeByMessage makes the message id stand in for an Idempotency-Key (A20).
	DedupeByMessage bool
	Push            bool     // callers may have it call webhooks (A17)
	Forward         []string // headers of callers that go on beside those of A7, in canonical form
	// Bridge reaches the agent for callers of another dialect; nil: they are
	// refused.
	Bridge http.RoundTripper
}

// An envelope is what the stages know of a request because it is one of A2A.
type envelope struct {
	name        string // of the agent, as it was asked for
	below       string // the mount, escaped as it came
	binding     a2a.Binding
	card        bool  // it asks for the card
	fault       error // why it cannot be understood; route tells
	call        a2a.Call
	asksVersion bool         // the caller names one
	version     string       // of A2A, as the agent is told; "": none, which means 0.3
	whole       bool         // an error before a stream is read as a whole answer (A14)
	request     *a2a.Request // as the gateway's Edit and a face are shown it; nil where nobody is
	body        []byte       // as the gateway's Edit left it; nil: as it came
	out         []byte       // as it goes to the agent; nil before
	told        a2a.Frame    // what a whole answer tells
	read        bool         // that was read: the answer is valid JSON
	mention     a2a.Mention  // what its metadata says of chains, evidence and policies
}

// envelopeOf reads the path of a request below the A2A mounts.
func envelopeOf(r *http.Request) *envelope {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), a2aPrefix)
	if !ok {
		return nil
	}
	e := &envelope{binding: a2a.JSONRPC, whole: a2a.TakesWholeError(r)}
	name, below, slash := strings.Cut(rest, "/")
	if slash {
		below = "/" + below
	}
	plain, err := url.PathUnescape(name)
	if e.name = plain; err != nil {
		e.name = name
	}
	switch trimmed := strings.TrimRight(below, "/"); {
	case trimmed == "":
		if r.Method != http.MethodPost {
			e.fault = errNotPost()
		}
	case trimmed == cardPath:
		e.card, e.binding = true, a2a.REST
	case below == restMount || strings.HasPrefix(below, restMount+"/"):
		e.binding, e.below = a2a.REST, strings.TrimPrefix(below, restMount)
		e.call.Method, e.call.TaskID = a2a.MethodAt(r.Method, e.below)
		if e.call.Operation == a2a.OpList && r.URL.RawQuery != "" {
			e.call.ContextID = r.URL.Query().Get("contextId")
		}
	default:
		e.fault = &agentbus.Error{
			Code: agentbus.CodeAgentNotFound, Message: "an A2A agent has nothing at this path",
			Explain: &agentbus.Explain{Rule: "A3", Next: "POST to " + a2aPrefix + "NAME, call " + a2aPrefix + "NAME/rest/…, or GET " + a2aPrefix + "NAME" + cardPath},
		}
	}
	e.call.Binding = e.binding
	if e.fault == nil {
		e.fault = passable(r, rest)
	}
	return e
}

// errNotPost says that JSON-RPC is sent with POST: as every path of the bus does
// (RFC 9110, section 15.5.6), in the form of JSON-RPC.
func errNotPost() error {
	e := a2a.ErrorOf(invalidPath("A3", "JSON-RPC is sent with POST", "POST the request, or GET "+a2aPrefix+"NAME"+cardPath))
	e.Status = http.StatusMethodNotAllowed
	return e
}

// peek reads the body of the request (A4).
func (e *envelope) peek(body []byte) {
	if e.card || e.fault != nil {
		return
	}
	asked := e.call // by the path and the query
	e.call, e.fault = a2a.Peek(e.binding, asked.Method, body)
	if asked.TaskID != "" {
		e.call.TaskID = asked.TaskID
	}
	if asked.ContextID != "" {
		e.call.ContextID = asked.ContextID
	}
}

// id returns the JSON-RPC id of the request, also of one that was not read yet.
func (e *envelope) id(body []byte) []byte {
	if e.call.ID == nil && e.binding == a2a.JSONRPC {
		return a2a.PeekID(body)
	}
	return e.call.ID
}

// isCall reports whether the request is a call of the ledger: it executes, and
// is charged (G20).
func (x *exchange) isCall(r *http.Request) bool {
	if x.envelope != nil {
		return x.envelope.call.Operation.Executes()
	}
	return r.Method == http.MethodPost
}

// writeError answers the caller with one of our own errors, in its dialect (A14).
func (x *exchange) writeError(w http.ResponseWriter, err error) {
	if e := x.envelope; e != nil {
		if told := a2a.ErrorOf(err); told.Status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", http.MethodPost)
		}
		write := a2a.WriteError
		if e.call.Operation.Streams() && !e.whole {
			write = a2a.WriteStreamError
		}
		write(w, e.binding, e.id(x.body), err)
		return
	}
	if e, ok := errors.AsType[*a2a.Error](err); ok {
		err = e.Bus()
	}
	httpx.WriteError(w, x.lineage, err)
}

// findA2A finds the agent that the path of an A2A request names.
func (g *Gateway) findA2A(r *http.Request, x *exchange) error {
	e := x.envelope
	if e.fault == nil {
		e.version, e.fault = versionOf(r)
		e.asksVersion = e.version != ""
	}
	x.record.Agent, x.path = e.name, e.below
	t, ok := g.cfg.Router.Route(e.name)
	switch {
	case !ok:
		return g.notCallable(x, e.name)
	case e.fault != nil:
		x.target = t // so that the record names it
		return e.fault
	case t.A2A == nil && g.cfg.Face == nil:
		return &agentbus.Error{
			Code: agentbus.CodeAgentNotFound, Message: "agent " + t.Name + " is not served over A2A",
			Explain: &agentbus.Explain{Rule: "A3", Next: "call it as model of POST /v1/chat/completions"},
		}
	}
	if x.target = t; t.A2A != nil {
		e.version = or(e.version, t.A2A.DefaultVersion)
	}
	return nil
}

// versionOf returns the A2A version that a caller names, in a header or in the
// query (A8).
func versionOf(r *http.Request) (string, error) {
	told := r.Header["A2a-Version"]
	if r.URL.RawQuery != "" {
		told = append(slices.Clip(told), r.URL.Query()["A2A-Version"]...)
	}
	if len(told) > 1 || len(told) == 1 && strings.Contains(told[0], ",") {
		return "", &agentbus.Error{
			Code: agentbus.CodeDuplicateHeader, Message: "A2A-Version must be sent once",
			Explain: &agentbus.Explain{Rule: "A8", Next: "send one A2A-Version"},
		}
	}
	if len(told) == 0 {
		return "", nil
	}
	return told[0], nil
}

// serveA2A hands a request of A2A on once it is known who calls whom: to the
// face of an agent of another dialect, which calls the agent through the gateway
// in its turn, or to the stages that remain.
func (g *Gateway) serveA2A(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	e := x.envelope
	if x.target.A2A != nil {
		err := g.mayCallBack(r.Context(), x)
		if err == nil {
			err = g.locate(r.Context(), x)
		}
		if err != nil {
			x.refuse(w, err)
			return
		}
	}
	if x.target.A2A == nil || g.cfg.A2A.Edit != nil {
		e.request = g.shown(r, x)
	}
	if g.cfg.A2A.Edit != nil {
		body, err := g.cfg.A2A.Edit(r.Context(), e.request, &e.call, x.body)
		if err != nil {
			x.refuse(w, err)
			return
		}
		e.body = body
	}
	if x.target.A2A == nil {
		if err := g.judge(r, x); err != nil {
			x.refuse(w, err)
			return
		}
		e.request.Lineage.Chain, e.request.Evidence, e.request.Hop = x.lineage.Chain, x.evidence, x.hopIn
		g.face(w, r, x)
		return
	}
	g.rest.ServeHTTP(w, r)
}

// shown is what the gateway's Edit and the face of an agent are shown of a request.
func (g *Gateway) shown(r *http.Request, x *exchange) *a2a.Request {
	q := &a2a.Request{Agent: x.target.Name, Caller: x.caller, Payer: x.payer, Lineage: x.lineage, Minted: !x.named || x.scope != nil, Base: g.mount(r, x.target)}
	if x.inProcess == nil {
		q.Lineage = x.lineage.Forward()
	}
	return q
}

// mayCallBack judges a webhook, which the bus would not see (A17).
func (g *Gateway) mayCallBack(ctx context.Context, x *exchange) error {
	c := &x.envelope.call
	switch {
	case !c.Creates && !c.Webhook:
		return nil
	case x.target.A2A.Push && g.cfg.A2A.Webhook != nil && len(c.WebhookURLs) > 0:
		for _, u := range c.WebhookURLs {
			if err := g.cfg.A2A.Webhook(ctx, u); err != nil {
				return err
			}
		}
		return nil
	}
	return a2a.Standard(a2a.CodePushNotSupported, "", &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: "agent " + x.target.Name + " calls no webhooks here: they would pass the bus by",
		Explain: &agentbus.Explain{Rule: "A17", Next: "subscribe to the task, or ask the operator for push: passthrough on the agent"},
	})
}

// face hands the request to the face of its agent.
func (g *Gateway) face(w http.ResponseWriter, r *http.Request, x *exchange) {
	x.record.State = agentbus.CallPassed
	r = r.WithContext(a2a.NewContext(r.Context(), x.envelope.request))
	body := g.bodyOut(x)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	x.echo(w.Header())
	g.cfg.Face.ServeHTTP(&faceWriter{ResponseWriter: w, exchange: x}, r)
}

// A faceWriter notes what a face answers.
type faceWriter struct {
	http.ResponseWriter
	exchange *exchange
}

// WriteHeader notes the status.
func (w *faceWriter) WriteHeader(status int) {
	if x := w.exchange; !x.wrote && status >= http.StatusOK {
		x.record.Status = status
		x.answering()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write notes that an answer is on its way.
func (w *faceWriter) Write(b []byte) (int, error) {
	if !w.exchange.wrote {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b) //nolint:wrapcheck // the face looks at it
}

// Flush is for those who ask a writer whether it can.
func (w *faceWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *faceWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// mount returns the URL of an agent's A2A mount, as its callers reach it (A10).
func (g *Gateway) mount(r *http.Request, t *Target) string {
	return g.publicURL(r) + a2aPrefix + url.PathEscape(t.Name)
}

// publicURL returns where callers reach the bus: what is configured, else what
// the request says. Only a trusted proxy may say otherwise.
func (g *Gateway) publicURL(r *http.Request) string {
	if u := g.cfg.A2A.PublicURL; u != "" {
		return strings.TrimRight(u, "/")
	}
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if g.trusts(r.RemoteAddr) {
		if p := lastOf(r.Header["X-Forwarded-Proto"]); p == "http" || p == "https" {
			scheme = p
		}
		if h := lastOf(r.Header["X-Forwarded-Host"]); h != "" {
			host = h
		}
	}
	return scheme + "://" + host
}

// trusts reports whether what comes from addr may say what its caller asked for.
func (g *Gateway) trusts(addr string) bool {
	from, err := netip.ParseAddrPort(addr)
	if err != nil {
		return false
	}
	for _, p := range g.cfg.A2A.TrustedProxies {
		if p.Contains(from.Addr().Unmap()) {
			return true
		}
	}
	return false
}

// lastOf returns the last entry of a list over header lines: the one that the
// nearest proxy wrote.
func lastOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	list := values[len(values)-1]
	return strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:])
}
