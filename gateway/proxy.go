package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
)

// Why an execution was ended from outside.
var (
	errCallerLeft = errors.New("the caller left")
	errTooLong    = errors.New("the call took too long")
	errIdle       = errors.New("the agent sent nothing for too long")
)

// proxy calls the agent and passes its answer on.
func (g *Gateway) proxy(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		ctx, cancel, release := g.callContext(r, x)
		defer release()
		err := g.rebind(ctx, x) //nolint:contextcheck // a call outlives its caller (G14)
		if err == nil {
			err = g.sign(ctx, x) //nolint:contextcheck // as above
		}
		if err != nil {
			g.fail(w, r, x, err)
			return
		}
		x.calling()
		resp, t, err := g.roundTrip(ctx, x, r) //nolint:contextcheck // a call outlives its caller (G14)
		x.waited(x.seen.Called)
		if err != nil {
			g.fail(w, r, x, transportError(ctx, err)) //nolint:contextcheck // as above
			return
		}
		faults.At(faults.AgentAnswered)
		a := &answer{gateway: g, exchange: x, w: w, out: g.outlet(w), r: r, ctx: ctx, cancel: cancel, resp: resp, try: t}
		defer func() {
			_ = resp.Body.Close()
			a.landed()
			a.learning.Wait()
		}()
		a.pass() //nolint:contextcheck // as above
	})
}

// callContext returns the context of the upstream call. A call outlives its
// caller, bounded in count and time, so that the answer is there for the retry
// (G14); anything that is no call ends with its caller.
func (g *Gateway) callContext(r *http.Request, x *exchange) (context.Context, context.CancelCauseFunc, func()) {
	if x.flight == nil {
		ctx, cancel := context.WithCancelCause(r.Context())
		x.fill()
		leave := g.flights.pass(x.record, cancel)
		g.endStopped(x, cancel)
		if x.envelope != nil {
			x.deadline = time.AfterFunc(g.cfg.CallTimeout, func() { cancel(errTooLong) })
		}
		return ctx, cancel, func() {
			if leave(); x.deadline != nil {
				x.deadline.Stop()
			}
			cancel(nil)
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	g.flights.began(x.flight, cancel)
	g.endStopped(x, cancel)
	deadline := time.AfterFunc(x.patience(g.cfg.CallTimeout), func() { cancel(errTooLong) })
	x.deadline = deadline
	stop := context.AfterFunc(r.Context(), func() { // ends with ctx at the latest, which release ends
		left := fmt.Errorf("%w: %w", errCallerLeft, context.Cause(r.Context())) //nolint:contextcheck // an agent in this process may want to know why
		if x.inProcess != nil {                                                 // a driver of this bus aborts what it began, and waits for it
			g.endStopped(x, cancel) // which may be why it left
			cancel(left)
			return
		}
		g.goOn(ctx, x, func() { cancel(left) })
	})
	return ctx, cancel, func() {
		stop()
		deadline.Stop()
		cancel(nil)
	}
}

// goOn lets a call go on whose caller left, as long as duplicates wait for it; with
// nobody there any more, in a slot and for a time, or not at all (G14).
func (g *Gateway) goOn(ctx context.Context, x *exchange, end func()) {
	for ctx.Err() == nil {
		x.flight.untilAlone(ctx)
		if (x.target.NoDetach || !g.detached(ctx, x.flight)) && !x.flight.attended() {
			end()
			return
		}
	}
}

// detached waits in a slot for the end of a call, or for a duplicate of it. It reports
// false when there is none, or the time of a call without its caller is over.
func (g *Gateway) detached(ctx context.Context, f *flight) bool {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	default:
		return false
	}
	patience := time.NewTimer(g.cfg.DetachTimeout)
	defer patience.Stop()
	for change := f.still(false); change != nil; change = f.still(false) {
		select {
		case <-change:
		case <-patience.C:
			return false
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// endStopped ends a call, or its wait, that passed authorize before its run was
// stopped.
func (g *Gateway) endStopped(x *exchange, cancel context.CancelCauseFunc) {
	if g.stopped.has(x.lineage.Run) {
		cancel(errRunStopped)
	}
}

// model is what the agent is asked for; "": what the caller asks for.
func (x *exchange) model() string {
	if x.inProcess != nil && x.inProcess.Model != "" {
		return x.inProcess.Model
	}
	return x.target.Model
}

// bodyOut is what the agent is sent: the bytes as they came, with the agent's own
// name of its model and its place in the chain of agents, where it is told (C9).
// At the end of a chain a model is offered no tools that go beyond it (C8).
func (g *Gateway) bodyOut(x *exchange) []byte {
	t, out := x.target, x.body
	switch {
	case x.envelope != nil:
		return x.stamped()
	case x.dialect == dialectOther:
		return out
	}
	if model := x.model(); model != "" {
		out = x.peek.withModel(out, model)
	}
	if t.Tools != nil {
		out = t.mayOffer(out)
	}
	if !t.Cue || !g.cues(x) {
		return out
	}
	c := x.lineage.Chain
	if c.Final {
		out = g.withoutDelegation(x, out)
	}
	return withCue(out, x.dialect, c.Render())
}

// cues reports whether an agent that is a model, or a program around one, is told
// its place in the chain. The first agent that a conversation of this bus calls is
// told what was said, and nothing else (R4), unless the operator wants it told.
func (g *Gateway) cues(x *exchange) bool {
	c := x.lineage.Chain
	return c != nil && (!x.driven() || g.cfg.Chain.CueFirst || c.Hop > 1 || c.Final)
}

// outbound is the request to the agent: the bytes as they came, hop-by-hop
// headers removed (G12), the lineage of the next hop written from what was
// parsed (P6, P8), the agent's own credential or none (P22).
func (g *Gateway) outbound(ctx context.Context, x *exchange, r *http.Request, to *upstream, body *upload) *http.Request {
	h := make(http.Header, len(r.Header)+8)
	copyEndToEnd(h, r.Header)
	for name := range h {
		if notForwarded[name] || strings.HasPrefix(name, "X-Forwarded-") || tellsUser(name) || x.envelope != nil && !x.allowed(name) || x.envelope == nil && foldable(name) {
			delete(h, name)
		}
	}
	if x.envelope != nil {
		x.speak(h)
	}
	h["Accept-Encoding"] = []string{"identity"} // to say nothing would allow any (G11)
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // the transport would add its own
	}
	if x.envelope == nil && x.dialect != dialectOther && !isJSON(h) {
		h["Content-Type"] = []string{"application/json"} // which the body is (G9), and agents look
	}
	x.forwardedFor(h, r)
	x.user(h, r.Header)
	out := x.lineageOut()
	out.TraceParent, out.Hop = x.seen.Client.String(), x.hop
	if !x.local() {
		x.seen.Host = to.base.Host
	}
	out.SetHeaders(h)
	g.layer(ctx, x, h)
	x.recorder.sends(h)
	switch { // last: nothing else sets it (K6)
	case !x.target.Authorization.IsZero():
		h["Authorization"] = []string{reveal(x.target.Authorization)}
	case x.target.Passthrough && !x.auth.IsZero():
		h["Authorization"] = []string{reveal(x.auth)}
	}
	u := g.addressed(ctx, x, r, to)
	req := (&http.Request{
		Method: r.Method, URL: u, Host: u.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(body.r.Len()), Body: body,
	}).WithContext(g.ownContext(ctx, x))
	if body.r.Len() == 0 {
		req.Body = http.NoBody
	}
	return req
}

// isJSON reports whether a request says that its body is JSON.
func isJSON(h http.Header) bool {
	told := h.Get("Content-Type")
	if told == "application/json" {
		return true
	}
	mt, _, err := mime.ParseMediaType(told)
	return err == nil && (mt == "application/json" || strings.HasSuffix(mt, "+json"))
}

// lineageOut returns the lineage of the next hop.
func (x *exchange) lineageOut() agentbus.Lineage {
	if x.driven() { // a driver of this bus has counted its hop already (P9)
		return x.lineage
	}
	return x.lineage.Forward()
}

// local reports whether the request stays in this process: the agent lives here,
// or the bridge to it does.
func (x *exchange) local() bool { return x.target.Local || x.bridged() }

// bridged reports whether the agent speaks A2A and the caller something else.
func (x *exchange) bridged() bool { return x.target.A2A != nil && x.envelope == nil }

func (x *exchange) transport() http.RoundTripper {
	if x.bridged() {
		return x.target.A2A.Bridge
	}
	return x.target.Transport
}

// ownContext tells an agent that lives in this process whose bill it works on.
func (g *Gateway) ownContext(ctx context.Context, x *exchange) context.Context {
	if !x.local() {
		return ctx
	}
	caller := agentbus.Principal{ID: "agent:" + x.target.Name, Grants: x.caller.Grants} // it may call what its caller may
	inline := x.bridged() && x.inProcess != nil && x.inProcess.Inline
	return WithInProcess(g.signing(g.showing(ctx, x), x), InProcess{
		Caller: caller, Payer: x.payer, Chain: x.lineage.Chain, Cued: g.cues(x), Inline: inline, Within: x.ancestors, Evidence: x.evidence,
	})
}

// reveal is where the proxy writes a credential into a request (P19).
func reveal(c agentbus.Credential) string {
	return c.Reveal() //nolint:forbidigo // this request is where it goes (P22)
}

// forwardedFor says who called, in place of whatever the caller said (G12).
func (x *exchange) forwardedFor(h http.Header, r *http.Request) {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		h["X-Forwarded-For"] = []string{host}
	}
	h["X-Forwarded-Host"] = []string{r.Host}
	h["X-Forwarded-Proto"] = []string{"http"}
	if r.TLS != nil {
		h["X-Forwarded-Proto"] = []string{"https"}
	}
	h["Via"] = append(h["Via"], "1.1 agentbus")
}

// notForwarded are the headers of a request that end here: credentials (P22),
// what Go's transport takes for leave to send a POST twice, encodings that could
// not be read (G11), and what a caller says of the way it came (G12).
var notForwarded = map[string]bool{
	"Authorization": true, "Cookie": true, "Idempotency-Key": true, "X-Idempotency-Key": true, "Accept-Encoding": true,
	"Forwarded": true, "X-Real-Ip": true,
}

// hopByHop are the headers of one connection (RFC 9110, section 7.6.1).
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true,
	"Proxy-Authorization": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Http2-Settings": true, "Expect": true, "Content-Length": true, // the last two are the transport's to write
}

// copyEndToEnd copies the headers of src that are not of its connection. The
// protocol's own are left to SetHeaders (P6).
func copyEndToEnd(dst, src http.Header) {
	for k, v := range src {
		if !hopByHop[k] && !agentbus.IsProtocolHeader(k) {
			dst[k] = slices.Clip(v)
		}
	}
	for _, list := range src["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			delete(dst, textproto.CanonicalMIMEHeaderKey(strings.Trim(name, " \t")))
		}
	}
}

// foldable reports whether a CGI-like server would take a header for another one,
// because it folds "_" into "-": Content_Length for the length that the transport
// writes, X_Forwarded_For for what only the bus says (P5, G12). No such header of a
// caller goes on.
func foldable(name string) bool { return strings.Contains(name, "_") }

// folded returns the names that foldable leaves out of what is forwarded, for the
// record, sorted and not more than people read. An A2A agent is told those that the
// operator lists, and no others.
func (x *exchange) folded(h http.Header) []string {
	if x.envelope != nil {
		return agentbus.Twins(h)
	}
	const names, letters = 8, 64
	var all []string
	for name := range h {
		if foldable(name) {
			all = append(all, name[:min(len(name), letters)])
		}
	}
	slices.Sort(all)
	return all[:min(len(all), names)]
}

// transportError says why the agent gave no answer.
func transportError(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	var timeout net.Error
	switch {
	case errors.Is(cause, errTooLong), errors.Is(cause, errIdle), ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout():
		message := "the agent did not answer in time"
		if handshaking(err) {
			message = "the agent did not finish the TLS handshake in time"
		}
		return &agentbus.Error{
			Code: agentbus.CodeDeadlineExceeded, Message: message, Err: errors.Join(err, cause),
			Explain: &agentbus.Explain{Rule: "G3", Next: "send the same turn again" + raise(err, cause)},
		}
	case errors.Is(cause, errRunStopped):
		return errRunStopped
	case errors.Is(cause, errAborted):
		return &agentbus.Error{Code: agentbus.CodeDraining, Message: "the bus is shutting down", Err: err}
	case errors.Is(cause, errCallerLeft):
		return &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: "the caller left, and the call was ended with that", Err: errors.Join(err, cause),
			Explain: &agentbus.Explain{Rule: "G14", Next: "send the same turn again; it is charged once"},
		}
	}
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the agent could not be reached, or its answer broke off", Err: errors.Join(err, cause),
		Explain: &agentbus.Explain{Next: "send the same turn again; it is charged once"},
	}
}

// raise says which limit an agent that did not answer in time ran into; there is
// none for how long it may take to accept a connection, over TLS or not.
func raise(err, cause error) string {
	limit := "limits.response_header"
	switch op, ok := errors.AsType[*net.OpError](err); {
	case errors.Is(cause, errTooLong):
		limit = "limits.call_timeout"
	case errors.Is(cause, errIdle):
		limit = "limits.stream_idle"
	case ok && op.Op == "dial", handshaking(err):
		return ""
	}
	return ", or ask the operator to raise " + limit
}

// handshaking reports whether the agent's TLS handshake took too long, which net/http
// tells in words alone.
func handshaking(err error) bool { return strings.HasSuffix(err.Error(), "TLS handshake timeout") }

// fail ends a call that has no answer: the attempt is voided, the caller reads
// why, and so do the duplicates that wait for it.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, x *exchange, err error) {
	x.failed = err
	g.void(r.Context(), x, err, agentbus.Usage{}, 0)
	x.refuse(w, err)
}

// statusOf returns the status of a request that ended with e, which tells whether its
// caller left: a duplicate's did not. One in this process that left for want of an answer
// in time, also of the call around this one, which the code then says, tells of the agent.
func (x *exchange) statusOf(e *agentbus.Error) int {
	if x.seen.Called.IsZero() || e.Code != agentbus.CodeAgentUnavailable || !errors.Is(e.Err, errCallerLeft) || errors.Is(e.Err, context.DeadlineExceeded) {
		return e.Code.Status()
	}
	if late, told := errors.AsType[*agentbus.Error](e.Err); told && late.Code == agentbus.CodeDeadlineExceeded {
		return e.Code.Status()
	}
	return agentbus.StatusCallerLeft
}

// void frees the key of an attempt that failed (G20).
func (g *Gateway) void(ctx context.Context, x *exchange, why error, u agentbus.Usage, unbilled agentbus.Micros) {
	e := agentbus.AsError(why)
	message := x.redact(e.Message) // it may hold words of the agent
	x.record.Code, x.record.Message, x.record.Status = e.Code, message, x.statusOf(e)
	if e.Status != 0 { // the agent's own answer passes as it is
		x.record.Status = e.Status
	}
	cause := ""
	if e.Err != nil {
		cause = x.redact(e.Err.Error())
	}
	g.log.LogAttrs(ctx, slog.LevelWarn, "attempt failed", x.where(),
		slog.String("code", string(e.Code)), slog.String("error", message), slog.String("cause", cause))
	if x.flight == nil {
		return
	}
	x.record.State, x.record.Usage, x.record.Unbilled = agentbus.CallVoided, u, unbilled
	x.flight.change(func() { x.flight.call.State = agentbus.CallVoided })
	faults.At(faults.VoidBefore)
	v := agentbus.Voiding{
		ID: x.record.ID, Attempt: x.attempt, Status: x.record.Status, Code: e.Code, Message: message,
		Usage: u, Unbilled: unbilled, Hold: x.want.hold, Sent: x.recorder.wasSent(), Answer: x.answered(), Ended: time.Now(),
	}
	err := g.cfg.Ledger.Void(context.WithoutCancel(ctx), v)
	faults.At(faults.VoidAfter)
	g.funds.released(x)
	if err != nil { // the key frees itself with the next attempt, too, or when this process is gone
		if agentbus.CodeOf(err) == agentbus.CodeStoreUnavailable {
			g.late.keep(v)
		}
		g.log.LogAttrs(ctx, slog.LevelError, "attempt not voided", slog.String("request_id", x.requestID), slog.Any("error", err))
	}
	g.flights.leave(x.flight)
}
