package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// events are the stream of an A2A agent on its way to the caller (A11).
type events struct {
	*answer
	kept    http.Header
	tap     tap
	begun   bool            // the head is out; a REST caller waits for the first event (A14)
	first   []byte          // what came before that may go on
	unread  []byte          // the event so far, which may be of another's task (A12)
	large   *a2a.TaskFinder // looks into an event that is too long to wait for; nil: there is none
	data    []byte          // of the first event
	failed  bool            // which is an error
	frames  int
	usage   reported
	said    a2a.Said // what is estimated of, where it tells none
	held    []byte   // the end of the stream, which waits for the settlement (G21)
	settled bool
	fault   error // what was told is not the caller's
}

// comment is what is sent between events so that nobody takes a silent stream
// for a dead one.
var comment = []byte(": keepalive\n\n")

// passEvents passes a stream on as it comes, and stores that of a call beside.
func (a *answer) passEvents() {
	s := &events{answer: a, kept: a.kept()}
	s.tap = tap{dialect: dialectA2A, binding: a.exchange.envelope.binding, most: a2a.MaxFrame, redact: a.exchange.redact, told: s.told}
	if s.tap.binding == a2a.JSONRPC {
		s.begin()
	}
	next, stop := a.pieces()
	defer a.stored() //nolint:errcheck // for a panic; otherwise it is over by then
	err := s.pump(next)
	stop()
	if unstored := a.stored(); unstored != nil && !s.settled {
		err = unstored
	}
	s.finish(err)
}

// A piece is what one read of a stream brought.
type piece struct {
	b   []byte
	err error
}

const pieceBytes = 8 << 10

// pieces reads the stream in a goroutine of its own, which stop ends and waits
// for. A piece is valid until the next one is asked for.
func (a *answer) pieces() (next <-chan piece, stop func()) {
	pieces, quit, ended := make(chan piece), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		buf, other := make([]byte, pieceBytes), make([]byte, pieceBytes)
		for {
			n, err := a.resp.Body.Read(buf)
			select {
			case pieces <- piece{buf[:n], err}:
				buf, other = other, buf // who took the one is done with the other
			case <-quit:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return pieces, func() {
		close(quit)
		a.cancel(errEnded)
		<-ended
	}
}

// pump passes pieces on until the stream is at its end, for which it returns
// io.EOF, or cannot go on.
func (s *events) pump(next <-chan piece) error {
	alive := time.NewTicker(s.gateway.cfg.A2A.KeepAlive)
	defer alive.Stop()
	var silent <-chan time.Time // what follows the end of the stream has not come
	for {
		since := time.Now()
		select {
		case p := <-next:
			s.exchange.waited(since)
			if err := s.take(p.b); err != nil {
				return err
			}
			if p.err != nil {
				return s.over(p.err)
			}
			alive.Reset(s.gateway.cfg.A2A.KeepAlive)
			if s.tap.ended && !s.settled && silent == nil {
				silent = time.After(drainTime)
			}
		case <-alive.C:
			s.keepAlive()
		case <-silent:
			if err := s.settle(); err != nil {
				return err
			}
		}
	}
}

// over says how the agent's stream ended.
func (s *events) over(err error) error {
	switch {
	case errors.Is(err, io.EOF):
	case s.tap.ended && s.ctx.Err() == nil: // what breaks behind the last event breaks nothing
		err = io.EOF
	default:
		s.broke = s.ctx.Err() == nil
		err = transportError(s.ctx, err)
	}
	s.landed()
	return err
}

// told takes what an event says.
func (s *events) told(data []byte, f *a2a.Frame) {
	if s.frames++; s.frames == 1 && !s.begun {
		s.data, s.failed = bytes.Clone(data), f.Err != nil
	}
	if f.Err != nil {
		s.exchange.envelope.told = *f
	}
	if u := usageIn(f); u.told() {
		s.usage = u
	}
	if !s.usage.tokens && s.exchange.flight != nil {
		s.said.HearFrame(f, data, s.tap.binding)
	}
	if err := s.owns(f); err != nil && s.fault == nil {
		s.fault = err
	}
}

// begin writes the head of the stream.
func (s *events) begin() {
	s.begun = true
	if s.exchange.flight != nil {
		s.exchange.flight.head(http.StatusOK, s.kept)
	}
	s.head(http.StatusOK, s.kept)
	_ = s.write(nil)
}

// errAnswered ends a stream whose first event became an answer of its own.
var errAnswered = errors.New("the stream was answered with its first event")

// take passes on what a piece completes, but for the end of a call's stream.
func (s *events) take(b []byte) error {
	at := s.tap.feed(b)
	if s.fault != nil {
		return s.fault
	}
	b, at, err := s.sift(b, at)
	if err != nil {
		return err
	}
	if !s.begun {
		switch {
		case s.frames == 0 && s.large == nil && len(s.first) < a2a.MaxFrame:
			s.first = append(s.first, b...)
			return nil
		case s.frames > 0 && s.failed:
			return s.answerError()
		}
		s.begin()
		if at >= 0 {
			at += len(s.first)
		}
		b, s.first = append(s.first, b...), nil
	}
	switch {
	case s.exchange.flight == nil || s.settled:
		return s.write(b)
	case len(s.held) > 0:
		s.held = append(s.held, b...)
		return nil
	case at >= 0:
		s.held = append(s.held, b[at:]...)
		b = b[:at]
	}
	return s.forward(b)
}

// sift returns what may go on with a piece: events that were looked at whole. Of
// one that is longer than what is read, its beginning must name the task. at is
// where the event that ends the stream begins, or negative.
func (s *events) sift(b []byte, at int) (pass []byte, _ int, err error) {
	seen := s.tap.seen
	if s.large != nil {
		rest := len(b)
		if seen > 0 {
			rest = seen
		}
		if err := s.owns(&a2a.Frame{Tasks: s.large.Feed(b[:rest])}); err != nil {
			return nil, at, err
		}
		if seen > 0 {
			s.large = nil
		}
		seen = rest
	}
	own := len(s.unread) > 0
	if own {
		if at > 0 {
			at += len(s.unread)
		}
		if seen > 0 {
			seen += len(s.unread)
		}
		b, s.unread = append(s.unread, b...), nil
	}
	switch rest := b[seen:]; {
	case len(rest) > a2a.MaxFrame:
		s.large = a2a.NewTaskFinder(s.tap.binding)
		return b, at, s.begins(s.large, rest)
	case own && seen == 0:
		s.unread = b
	case len(rest) > 0:
		s.unread = slices.Clone(rest)
	}
	return b[:seen], at, nil
}

// forward passes bytes on, and stores those of a call.
func (s *events) forward(b []byte) error {
	if s.exchange.flight == nil {
		return s.write(b)
	}
	return s.answer.take(b)
}

// answerError answers a REST caller whose stream begins with an error by the
// error's status: it would read an empty stream (A14).
func (s *events) answerError() error {
	x, e := s.exchange, s.exchange.envelope.told.Err
	status := e.HTTPStatus(a2a.REST)
	if status < http.StatusBadRequest || status > 599 {
		status = http.StatusBadGateway
	}
	body := []byte(x.redact(string(s.data)))
	s.kept["Content-Type"] = []string{"application/json"}
	x.recorder.answers(s.kept, int64(len(body)), body, nil)
	if x.flight != nil {
		if why := laterFault(e); why != nil || !isFinal(status) {
			s.gateway.void(s.r.Context(), x, or(why, laterError(status, body)), agentbus.Usage{}, 0)
		} else if err := s.answer.settle(agentbus.StoredReply{Status: status, Header: s.kept, Body: body}, agentbus.Usage{}, false); err != nil {
			return err
		}
		x.flight.head(status, s.kept)
		x.flight.publish(body, s.gateway.cfg.MaxReply)
	}
	s.begun, s.settled, x.record.Status = true, true, status
	s.head(status, s.kept)
	_ = s.gateway.send(s.w, body)
	return errAnswered
}

// keepAlive says that the stream is alive, between events only.
func (s *events) keepAlive() {
	switch {
	case !s.begun: // the first event takes its time: it is a stream in any case now
		s.begin()
		_ = s.write(comment)
		if first := s.first; len(first) > 0 {
			s.first = nil
			_ = s.forward(first) // what does not reach the caller shows with the next piece
		}
	case s.tap.between() && (len(s.held) == 0 || s.settled):
		_ = s.write(comment)
	}
}

// settle settles the call with the whole of its stream, and lets the end go.
func (s *events) settle() error {
	x, g := s.exchange, s.gateway
	if x.flight == nil || s.settled {
		return nil
	}
	if err := s.stored(); err != nil {
		return err
	}
	s.total += int64(len(s.held))
	x.recorder.answers(s.kept, s.total, x.flight.body, s.held)
	u := x.usageOfFrame(s.usage, x.envelope.told.Err != nil, func() a2a.Said { return s.said })
	if why := laterFault(x.envelope.told.Err); why != nil {
		g.void(s.r.Context(), x, why, u, x.target.cost(u))
	} else if err := s.answer.settle(agentbus.StoredReply{Status: http.StatusOK, Header: s.kept, Body: s.rest(s.held)}, u, s.total > g.cfg.MaxReply); err != nil {
		return err
	}
	s.settled = true
	s.learning.Wait()
	x.flight.publish(s.held, g.cfg.MaxReply)
	if takesTrailers(s.r.Header) {
		x.tellCost(s.w.Header(), http.TrailerPrefix)
	}
	held := s.held
	s.held = nil
	return s.write(held)
}

// finish ends the answer: as the agent ended it, or with an error and a cut.
func (s *events) finish(err error) {
	x := s.exchange
	if errors.Is(err, errAnswered) {
		return
	}
	if errors.Is(err, io.EOF) {
		err = s.closed()
	}
	if err == nil || s.settled {
		return
	}
	if !s.begun {
		s.gateway.fail(s.w, s.r, x, err)
		return
	}
	if x.flight != nil {
		x.failed = err
		x.recorder.answers(s.kept, s.total, x.flight.body, nil)
		s.gateway.void(s.r.Context(), x, err, s.usage.Usage, x.target.cost(s.usage.Usage))
	}
	_ = s.write(x.errorEvent(err))
	x.cut(err)
}

// closed judges a stream that the agent ended. That of a call must have told its
// end (G15); what is only passed is as the agent left it, but for a last event that
// cannot be read.
func (s *events) closed() error {
	frames := s.frames
	err := s.tap.close()
	stopped := s.ctx.Err() != nil && !errors.Is(context.Cause(s.ctx), errEnded) // by us, which looks like an end
	switch {
	case s.fault != nil:
		return s.fault
	case s.exchange.flight != nil && err != nil && stopped:
		return transportError(s.ctx, err)
	case s.exchange.flight != nil && err != nil:
		return err
	case !s.begun && s.failed:
		if err := s.answerError(); !errors.Is(err, errAnswered) {
			return err
		}
		return nil
	case !s.begun:
		s.begin()
	}
	rest := s.first
	if s.frames > frames {
		rest = append(rest, s.unread...)
	}
	if s.exchange.flight == nil || s.settled {
		return s.write(rest)
	}
	s.held = append(s.held, rest...)
	return s.settle()
}
