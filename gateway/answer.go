package gateway

import (
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
	"github.com/agentbus/agentbus/openai"
)

// An answer is an agent's answer on its way to the caller.
type answer struct {
	gateway  *Gateway
	exchange *exchange
	w        http.ResponseWriter
	out      outlet // to w
	r        *http.Request
	ctx      context.Context //nolint:containedctx // of the upstream call; it lives as long as the answer
	cancel   context.CancelCauseFunc
	resp     *http.Response
	callerUp bool                  // the caller has gone: what is left is for the ledger
	try      try                   // what brought it
	broke    bool                  // the agent did not bring it to an end
	over     bool                  // the try is ended
	little   [512]byte             // what is read into while nothing is there
	learning sync.WaitGroup        // tasks that are being remembered
	claimed  []agentbus.RemoteTask // those that are remembered as the call is settled

	// Of a stream that is a call:
	total    int64      // bytes passed on
	batched  int        // how many of them are stored, or being stored
	since    time.Time  // when the first of the others came
	stores   chan error // tells when those that are being stored are; nil: none are
	appended bool       // some are stored, or being stored
}

// buffers are for what has come. A stream that waits for its agent, as most do
// most of the time, holds none; where the transport does not say what has come,
// it holds one that is waiting.
var (
	buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}
	waiting = sync.Pool{New: func() any { b := make([]byte, 6<<10); return &b }}
)

// pass settles or voids the call and passes the answer on.
func (a *answer) pass() {
	x := a.exchange
	x.record.Status = a.resp.StatusCode
	switch sse := a.isEvents(); {
	case a.resp.StatusCode < http.StatusOK:
		a.gateway.fail(a.w, a.r, x, &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: "agent " + x.target.Name + " switched protocols unasked",
			Explain: &agentbus.Explain{Rule: "G12", Observed: a.resp.StatusCode},
		})
	case a.redirects():
		a.gateway.fail(a.w, a.r, x, &agentbus.Error{
			Code: agentbus.CodeAgentRedirected, Message: "agent " + x.target.Name + " answered with a redirect, which is never followed",
			Explain: &agentbus.Explain{Rule: "P23", Observed: a.resp.StatusCode, Next: "configure the agent under the address it redirects to"},
		})
	case a.coded():
		a.gateway.fail(a.w, a.r, x, &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: "agent " + x.target.Name + " answered in a content coding, though it was asked for none",
			Explain: &agentbus.Explain{Rule: "G11", Observed: a.resp.Header.Get("Content-Encoding"), Next: "have what compresses the answers of the agent leave that out"},
		})
	case x.envelope != nil:
		a.passA2A(sse)
	case x.flight == nil:
		a.stream(func(b []byte) error { return a.write(b) })
	case sse && a.streams() && (x.peek.stream || x.dialect == dialectOther):
		a.passStream()
	default:
		a.passWhole(sse)
	}
}

// redirects reports whether the agent pointed elsewhere (P23). That nothing has
// changed is an answer of other APIs, and none to a question.
func (a *answer) redirects() bool {
	status := a.resp.StatusCode
	return status >= 300 && status < 400 &&
		(status != http.StatusNotModified || a.exchange.flight != nil && a.exchange.dialect != dialectOther)
}

// coded reports whether an answer that is read here came so that it cannot be
// (G11). What an agent's own paths answer, and its errors, pass as they are.
func (a *answer) coded() bool {
	coding, x := a.resp.Header.Get("Content-Encoding"), a.exchange
	return coding != "" && !strings.EqualFold(coding, "identity") && a.resp.StatusCode < http.StatusMultipleChoices &&
		(x.envelope != nil || x.flight != nil && x.dialect != dialectOther)
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
	if err := a.read(pass); err != nil {
		a.exchange.cut(err)
	}
}

// read reads the body to its end, or to the first error of use. The agent may
// be silent for IdleTimeout at most.
func (a *answer) read(use func([]byte) error) error {
	if told := a.resp.ContentLength; told < 0 || int64(a.here()) < told { // else it is here
		idle := time.AfterFunc(a.gateway.cfg.IdleTimeout, func() { a.cancel(errIdle) })
		defer idle.Stop()
		hear := use
		use = func(b []byte) error {
			idle.Stop() // the time that a caller takes is none that the agent is silent
			if err := hear(b); err != nil {
				return err
			}
			idle.Reset(a.gateway.cfg.IdleTimeout)
			return nil
		}
	}
	shared := &buffers
	if a.here() < 0 {
		shared = &waiting
	}
	var buf *[]byte
	defer func() {
		if buf != nil {
			shared.Put(buf)
		}
	}()
	for {
		if buf != nil {
			shared.Put(buf)
			buf = nil
		}
		since := time.Now()
		got, err := a.next(&buf)
		a.exchange.waited(since)
		if len(got) > 0 {
			if err := use(got); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			a.landed() // before the caller hears of it
			return nil
		}
		if err != nil {
			a.broke = a.ctx.Err() == nil || context.Cause(a.ctx) == errIdle //nolint:errorlint // causes are set as they are
			a.landed()
			return transportError(a.ctx, err)
		}
	}
}

// next waits for the next piece of the body, and returns it with what came with
// it. buf is the shared buffer that it is in, if it is.
func (a *answer) next(buf **[]byte) ([]byte, error) {
	if a.here() < 0 {
		*buf, _ = waiting.Get().(*[]byte)
		n, err := a.resp.Body.Read(**buf)
		return (**buf)[:n], err
	}
	n, err := a.resp.Body.Read(a.little[:])
	if err != nil || a.here() < aChunk {
		return a.little[:n], err
	}
	*buf, _ = buffers.Get().(*[]byte)
	copy(**buf, a.little[:n])
	for err == nil && a.here() >= aChunk && n < len(**buf) {
		var more int
		more, err = a.resp.Body.Read((**buf)[n:])
		n += more
	}
	return (**buf)[:n], err
}

// aChunk is more than what stands between two chunks of a body: behind so much,
// there is more of the body to be had without a wait.
const aChunk = 32

// here returns how many bytes of the answer have come and were not read; below
// 0: its body does not say.
func (a *answer) here() int {
	if b, ok := a.resp.Body.(interface{ Buffered() int }); ok {
		return b.Buffered()
	}
	return -1
}

// streams reports whether the answer's status tells a success that has a body: what
// has none cannot tell its end, nor that it failed.
func (a *answer) streams() bool {
	return a.resp.StatusCode < http.StatusMultipleChoices && a.resp.StatusCode != http.StatusNoContent
}

// landed ends the try that brought the answer, once: the agent has nothing more
// to do for it.
func (a *answer) landed() {
	if !a.over {
		a.over = true
		a.gateway.endTry(a.ctx, a.exchange, a.try, a.verdict())
	}
}

// verdict says what the answer tells of the URL it came from (G13): that it is
// no good when a server in front of it says so, or when it broke off. Status 500
// may be the request's fault as well as the URL's.
func (a *answer) verdict() verdict {
	switch status := a.resp.StatusCode; {
	case a.broke, status < http.StatusOK, status >= http.StatusBadGateway && status <= http.StatusGatewayTimeout:
		return bad
	case status >= http.StatusInternalServerError, a.ctx.Err() != nil && context.Cause(a.ctx) != errEnded: //nolint:errorlint // as above
		return unknown
	}
	return good
}

// kept returns the headers of the agent's answer that go on to the caller and
// into the ledger. What only the bus may say is left out.
func (a *answer) kept() http.Header {
	h := make(http.Header, len(a.resp.Header)+1) // no larger: a stream that waits holds it
	copyEndToEnd(h, a.resp.Header)
	for k := range h {
		if len(k) > 11 && k[:11] == "X-Agentbus-" {
			delete(h, k)
		}
	}
	if list := ignored(a.resp.Header); list != "" {
		h[headerIgnored] = []string{list}
		a.exchange.note("ignored:" + strings.ReplaceAll(list, ", ", "+"))
	}
	delete(h, "X-Request-Id")
	if a.exchange.flight != nil || a.exchange.envelope != nil {
		delete(h, "Set-Cookie") // an answer that may be given again sets no session
	}
	if n := a.resp.ContentLength; n >= 0 && a.exchange.flight == nil {
		h["Content-Length"] = []string{strconv.FormatInt(n, 10)}
	}
	return h
}

var headerIgnored = textproto.CanonicalMIMEHeaderKey(openai.HeaderIgnored)

// ignored returns the names of what a request offered and an agent says it was not
// told of (G2); "" when it says nothing, or something else.
func ignored(h http.Header) string {
	list := h.Get(headerIgnored)
	strange := strings.ContainsFunc(list, func(c rune) bool { return (c < 'a' || c > 'z') && c != '_' && c != ',' && c != ' ' })
	if len(list) > 128 || strange {
		return ""
	}
	return list
}

// copyHead copies the head of an answer into h. The server does not guess the
// type of an answer that tells none.
func copyHead(h, kept http.Header) {
	h["Content-Type"] = nil
	maps.Copy(h, kept)
}

// head writes the head of the answer.
func (a *answer) head(status int, kept http.Header) {
	h := a.w.Header()
	copyHead(h, kept)
	a.exchange.echo(h)
	h["Via"] = append(h["Via"], "1.1 agentbus")
	if a.exchange.attempt > 0 {
		h["X-Agentbus-Attempts"] = []string{strconv.Itoa(a.exchange.attempt)}
	}
	a.exchange.answering()
	a.w.WriteHeader(status)
}

// write passes b to the caller and flushes it. Once the caller has left, a call
// goes on without (G14).
func (a *answer) write(b []byte) error {
	if a.callerUp {
		return nil
	}
	err := a.out.send(b)
	if a.callerUp = err != nil; a.exchange.flight != nil {
		return nil
	}
	return err
}

// settle makes the answer and its charge durable (G21).
func (a *answer) settle(reply agentbus.StoredReply, u agentbus.Usage, drop bool) error {
	x := a.exchange
	cost, unbilled := agentbus.Micros(0), agentbus.Micros(0)
	if reply.Status < http.StatusBadRequest && !x.toldError() {
		cost, unbilled = x.charge(x.target.cost(u))
		if x.target.UsageCost && !x.costTold {
			a.gateway.unpriced(a.r.Context(), x)
		}
	}
	if unbilled > 0 {
		a.gateway.capped(a.r.Context(), x, cost, unbilled)
	}
	if err := a.gateway.noteHops(context.WithoutCancel(a.r.Context()), x); err != nil {
		return err
	}
	faults.At(faults.SettleBefore)
	err := a.gateway.cfg.Ledger.Settle(context.WithoutCancel(a.r.Context()), agentbus.Settlement{
		ID: x.record.ID, Attempt: x.attempt, Reply: reply, Appended: a.appended, Drop: drop,
		Usage: u, Cost: cost, Unbilled: unbilled, Hold: x.want.hold, Notes: x.notes[len(x.record.Notes):], Tasks: a.claimed,
		Sent: x.recorder.wasSent(), Answer: x.answered(), Ended: time.Now(),
	})
	faults.At(faults.SettleAfter)
	if len(a.claimed) > 0 && agentbus.CodeOf(err) == agentbus.CodeRunNotFound {
		return errNotYours
	}
	if err != nil {
		x.flight.part()
		return err
	}
	a.gateway.tasks.see(a.claimed)
	a.gateway.funds.released(x)
	x.record.Unbilled += unbilled
	x.record.State, x.record.Cost, x.record.Usage = agentbus.CallSettled, cost, u
	x.flight.change(func() { x.flight.call.State, x.flight.call.Cost, x.flight.call.Usage = agentbus.CallSettled, cost, u })
	a.gateway.flights.leave(x.flight)
	return nil
}
