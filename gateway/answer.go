package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
)

const (
	batchBytes = 16 << 10              // of a stream, stored together (G21)
	batchTime  = 50 * time.Millisecond // at most this old when they are stored
	drainTime  = 250 * time.Millisecond
)

// An answer is an agent's answer on its way to the caller.
type answer struct {
	gateway  *Gateway
	exchange *exchange
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context //nolint:containedctx // of the upstream call; it lives as long as the answer
	cancel   context.CancelCauseFunc
	resp     *http.Response
	callerUp bool // the caller has gone: what is left is for the ledger
	body     []byte
	stored   int // how much of body Append has stored
	storedAt time.Time
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}

// pass settles or voids the call and passes the answer on.
func (a *answer) pass() {
	x := a.exchange
	x.record.Status = a.resp.StatusCode
	switch sse := isSSE(a.resp.Header); {
	case a.resp.StatusCode >= 300 && a.resp.StatusCode < 400 && a.resp.StatusCode != http.StatusNotModified:
		a.gateway.fail(a.w, a.r, x, &agentbus.Error{
			Code: agentbus.CodeAgentRedirected, Message: "agent " + x.target.Name + " answered with a redirect, which is never followed",
			Explain: &agentbus.Explain{Rule: "P23", Observed: a.resp.StatusCode, Next: "configure the agent under the address it redirects to"},
		})
	case x.flight == nil:
		a.stream(func(b []byte) error { return a.write(b) })
	case sse && a.resp.StatusCode == http.StatusOK && (x.peek.stream || x.dialect == dialectOther):
		a.passStream()
	default:
		a.passWhole(sse)
	}
}

func isSSE(h http.Header) bool {
	ct := h.Get("Content-Type")
	if ct == "text/event-stream" {
		return true
	}
	mt, _, err := mime.ParseMediaType(ct)
	return err == nil && mt == "text/event-stream"
}

// stream copies an answer that is no call as it comes.
func (a *answer) stream(pass func([]byte) error) {
	a.head(a.resp.StatusCode, a.kept())
	err := a.read(pass)
	if err != nil && a.r.Context().Err() == nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // a broken answer must not look whole
	}
}

// read reads the body to its end, or to the first error of use. The agent may
// be silent for IdleTimeout at most.
func (a *answer) read(use func([]byte) error) error {
	idle := time.AfterFunc(a.gateway.cfg.IdleTimeout, func() { a.cancel(errIdle) })
	defer idle.Stop()
	buf, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := a.resp.Body.Read(*buf)
		if n > 0 {
			idle.Reset(a.gateway.cfg.IdleTimeout)
			if err := use((*buf)[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return transportError(a.ctx, err)
		}
	}
}

// kept returns the headers of the agent's answer that go on to the caller and
// into the ledger. What only the bus may say is left out.
func (a *answer) kept() http.Header {
	h := make(http.Header, len(a.resp.Header)+8)
	copyEndToEnd(h, a.resp.Header)
	for k := range h {
		if len(k) > 11 && k[:11] == "X-Agentbus-" {
			delete(h, k)
		}
	}
	delete(h, "X-Request-Id")
	if a.exchange.flight != nil {
		delete(h, "Set-Cookie") // an answer that may be given again sets no session
	} else if n := a.resp.ContentLength; n >= 0 {
		h["Content-Length"] = []string{strconv.FormatInt(n, 10)}
	}
	return h
}

// head writes the head of the answer.
func (a *answer) head(status int, kept http.Header) {
	h := a.w.Header()
	for k, v := range kept {
		h[k] = v
	}
	a.exchange.echo(h)
	h["Via"] = append(h["Via"], "1.1 agentbus")
	if a.exchange.attempt > 0 {
		h["X-Agentbus-Attempts"] = []string{strconv.Itoa(a.exchange.attempt)}
	}
	a.exchange.wrote = true
	a.w.WriteHeader(status)
}

// write passes b to the caller and flushes it. Once the caller has left, a call
// goes on without (G14).
func (a *answer) write(b []byte) error {
	if a.callerUp {
		return nil
	}
	rc := http.NewResponseController(a.w)
	_ = rc.SetWriteDeadline(time.Now().Add(a.gateway.cfg.IdleTimeout)) // an in-memory caller has none
	_, err := a.w.Write(b)
	if err == nil {
		err = rc.Flush()
	}
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		a.callerUp = true
		if a.exchange.flight == nil {
			return err
		}
	}
	return nil
}

// passWhole passes on an answer that is no stream: it is read, settled, and
// only then sent (G21).
func (a *answer) passWhole(sse bool) {
	x, g := a.exchange, a.gateway
	body, err := a.readWhole()
	if err != nil {
		g.fail(a.w, a.r, x, err)
		return
	}
	if len(body) == 0 && a.over() {
		return // passed on as it came; see readWhole
	}
	kept, status := a.kept(), a.resp.StatusCode
	if status == http.StatusOK {
		if body, err = a.convert(body, sse, kept); err != nil {
			g.fail(a.w, a.r, x, err)
			return
		}
	}
	if why := a.notFinal(status, body); why != nil {
		u := usageOf(body)
		g.void(a.r.Context(), x, why, u, x.target.cost(u))
		x.record.Status = status
	} else if err := a.settle(agentbus.StoredReply{Status: status, Header: kept, Body: body}, a.usage(status, body), false); err != nil {
		g.fail(a.w, a.r, x, err)
		return
	}
	x.flight.head(status, kept)
	x.flight.publish(body, g.cfg.MaxReply)
	kept["Content-Length"] = []string{strconv.Itoa(len(body))}
	kept["X-Agentbus-Cost-Usd"] = []string{x.record.Cost.USD()}
	a.head(status, kept)
	_, _ = a.w.Write(body) // a caller that left may ask again
}

// over reports whether the answer was too large to keep.
func (a *answer) over() bool { return a.exchange.wrote }

// readWhole reads the answer into memory. One that is larger than what is kept
// is passed on instead as it comes, but for its last bytes, which wait for the
// settlement; it returns nothing then.
func (a *answer) readWhole() ([]byte, error) {
	most := a.gateway.cfg.MaxReply
	body := make([]byte, 0, min(max(a.resp.ContentLength, 0), most)+512)
	var held []byte
	kept := a.kept()
	err := a.read(func(b []byte) error {
		if !a.over() && int64(len(body)+len(b)) <= most {
			body = append(body, b...)
			return nil
		}
		if !a.over() {
			a.exchange.flight.head(a.resp.StatusCode, kept)
			a.exchange.flight.publish(append(body, b...), most)
			a.head(a.resp.StatusCode, kept)
			held, body = body, nil
		}
		if len(held) > 0 {
			_ = a.write(held) // never fails for a call
		}
		held = append(held[:0:0], b...)
		return nil
	})
	switch {
	case !a.over():
		return body, err
	case err == nil && isFinal(a.resp.StatusCode):
		err = a.settleLarge(kept)
	case err == nil:
		err = a.notFinal(a.resp.StatusCode, nil)
	}
	if err != nil {
		a.breakOff(err)
	}
	_ = a.write(held)
	return nil, nil
}

// settleLarge settles an answer whose body is not kept. Its usage was not read.
func (a *answer) settleLarge(kept http.Header) error {
	s := agentbus.StoredReply{Status: a.resp.StatusCode, Header: kept}
	return a.settle(s, a.usage(a.resp.StatusCode, nil), true)
}

// breakOff ends an answer whose head is out already: the attempt is voided, the
// connection cut, so that nobody takes the part for the whole.
func (a *answer) breakOff(err error) {
	a.exchange.failed = err
	a.gateway.void(a.r.Context(), a.exchange, err, agentbus.Usage{}, 0)
	panic(http.ErrAbortHandler) //nolint:forbidigo // the server cuts the connection
}

// notFinal says why an answer does not settle its call, or nil.
func (a *answer) notFinal(status int, body []byte) error {
	switch {
	case !isFinal(status):
		return laterError(status, body)
	case status == http.StatusOK && a.exchange.dialect != dialectOther && isErrorBody(body):
		return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: status, Message: "the agent answered with an error under status 200"}
	}
	return nil
}

// laterError tells an answer that says "later" for the record: with the code and
// the words of a bus further down, where there is one.
func laterError(status int, body []byte) error {
	e := &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Status: status,
		Message: "the agent answered " + strconv.Itoa(status) + ", which is no final answer",
	}
	told := gjson.GetManyBytes(body, "error.code", "error.message")
	if code := agentbus.Code(told[0].Str); code.Known() {
		e.Code, e.Message = code, "below this agent: "+plain(told[1].String(), 300)
	}
	return e
}

// settle makes the answer and its charge durable (G21).
func (a *answer) settle(reply agentbus.StoredReply, u agentbus.Usage, drop bool) error {
	x := a.exchange
	cost := agentbus.Micros(0)
	if reply.Status < http.StatusBadRequest {
		cost = x.target.cost(u)
	}
	err := a.gateway.cfg.Ledger.Settle(context.WithoutCancel(a.r.Context()), agentbus.Settlement{
		ID: x.record.ID, Attempt: x.attempt, Reply: reply, Appended: a.stored > 0, Drop: drop,
		Usage: u, Cost: cost, Notes: x.notes[len(x.record.Notes):], Ended: time.Now(),
	})
	if err != nil {
		return err
	}
	x.record.State, x.record.Cost, x.record.Usage = agentbus.CallSettled, cost, u
	x.flight.change(func() { x.flight.call.State, x.flight.call.Cost = agentbus.CallSettled, cost })
	return nil
}

// passStream passes a stream on as it comes and stores it beside. Its end waits
// until all of it is settled (G21).
func (a *answer) passStream() {
	x, g := a.exchange, a.gateway
	kept := a.kept()
	delete(kept, "Content-Length")
	x.flight.head(http.StatusOK, kept)
	a.head(http.StatusOK, kept)
	a.storedAt = x.began
	t := tap{dialect: x.dialect}
	var held []byte
	err := a.read(func(b []byte) error {
		pass := b
		if len(held) > 0 {
			pass = nil
		}
		if at := t.feed(b); at >= 0 && len(held) == 0 {
			pass = b[:at]
		}
		held = append(held, b[len(pass):]...)
		if err := a.take(pass); err != nil || !t.ended {
			return err
		}
		return errEnded
	})
	if errors.Is(err, errEnded) {
		err = nil
	}
	if err == nil {
		if err = t.close(); err != nil && a.ctx.Err() != nil {
			err = transportError(a.ctx, err) // an agent in this process just stops when it is cut
		}
	}
	if err == nil {
		a.body = append(a.body, held...)
		reply := agentbus.StoredReply{Status: http.StatusOK, Header: kept, Body: a.body[a.stored:]}
		over := int64(len(a.body)) > g.cfg.MaxReply
		err = a.settle(reply, t.usageOr(x), over)
	}
	if err != nil {
		a.cutStream(err, &t)
	}
	x.flight.publish(held, g.cfg.MaxReply)
	if takesTrailers(a.r.Header) {
		a.w.Header()[http.TrailerPrefix+"X-Agentbus-Cost-Usd"] = []string{x.record.Cost.USD()}
	}
	_ = a.write(held) // never fails for a call
	if t.ended {
		a.drain()
	}
}

// takesTrailers reports whether who sent h reads trailers (RFC 9110, section
// 6.5.1). Who does not may take one for the next answer.
func takesTrailers(h http.Header) bool {
	for _, list := range h["Te"] {
		for coding := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.Trim(coding, " \t"), "trailers") {
				return true
			}
		}
	}
	return false
}

// errEnded stops reading a stream that has told its end.
var errEnded = errors.New("the stream has ended")

// take passes a piece of a stream on and stores it with the next batch.
func (a *answer) take(b []byte) error {
	if len(b) > 0 {
		_ = a.write(b) // never fails for a call
		a.exchange.flight.publish(b, a.gateway.cfg.MaxReply)
		a.body = append(a.body, b...)
	}
	if int64(len(a.body)) > a.gateway.cfg.MaxReply {
		a.body = a.body[:a.gateway.cfg.MaxReply+1] // not kept; only that it is over counts
		a.stored = min(a.stored, len(a.body))
		return nil
	}
	pending := a.body[a.stored:]
	if len(pending) == 0 || len(pending) < batchBytes && time.Since(a.storedAt) < batchTime {
		return nil
	}
	x := a.exchange
	if err := a.gateway.cfg.Ledger.Append(context.WithoutCancel(a.r.Context()), x.record.ID, x.attempt, pending); err != nil {
		return err
	}
	a.stored, a.storedAt = len(a.body), time.Now()
	return nil
}

// cutStream ends a stream that failed: an error event says why, and the
// connection is cut without the event that ends a whole stream (G15).
func (a *answer) cutStream(err error, t *tap) {
	x := a.exchange
	x.failed = err
	u := t.usageOr(x)
	a.gateway.void(a.r.Context(), x, err, u, x.target.cost(u))
	x.record.Status = agentbus.CodeOf(err).Status()
	x.record.Code, x.record.Message = agentbus.CodeOf(err), agentbus.AsError(err).Message
	_ = a.write(errorEvent(x.lineage, err)) // the cut says it too
	panic(http.ErrAbortHandler)             //nolint:forbidigo // a part must not look like the whole
}

// drain reads what an agent sends behind the end of its stream, so that the
// connection can be used again. It gives the agent a moment only.
func (a *answer) drain() {
	patience := time.AfterFunc(drainTime, func() { a.cancel(errEnded) })
	defer patience.Stop()
	if _, err := io.CopyN(io.Discard, a.resp.Body, batchBytes); err != nil && !errors.Is(err, io.EOF) {
		a.gateway.log.LogAttrs(a.ctx, slog.LevelDebug, "connection not reused", slog.Any("error", err))
	}
}
