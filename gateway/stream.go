package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
)

const (
	batchBytes = 16 << 10              // of a stream, stored together (G21)
	batchTime  = 50 * time.Millisecond // at most this old when they are stored
	drainTime  = 20 * time.Millisecond
)

// passStream passes a stream on as it comes and stores it beside. Its end waits
// until all of it is settled (G21).
func (a *answer) passStream() {
	x, g := a.exchange, a.gateway
	kept := a.kept()
	x.flight.head(a.resp.StatusCode, kept)
	a.head(a.resp.StatusCode, kept)
	if a.here() <= 0 {
		_ = a.write(nil) // the head as soon as it is known, unless events came with it; it never fails for a call
	}
	t := tap{dialect: x.dialect, redact: x.redact, counts: x.bridged(), mute: x.needsWords()}
	defer a.stored() //nolint:errcheck // for a panic; otherwise it is over by then
	held, err := a.readStream(&t)
	err = a.judge(&t, err)
	if t.ended {
		held = a.drain(held, t.cr)
	}
	if unstored := a.stored(); err == nil {
		err = unstored
	}
	x.recorder.answers(kept, a.total+int64(len(held)), x.flight.body, held)
	if err == nil {
		a.total += int64(len(held))
		err = a.endStream(&t, kept, held)
	}
	if err != nil {
		a.cutStream(err, &t)
	}
	x.flight.publish(held, g.cfg.MaxReply)
	if takesTrailers(a.r.Header) {
		x.tellCost(a.w.Header(), http.TrailerPrefix)
	}
	faults.At(faults.AckAmid)
	if !a.callerUp {
		_ = a.out.put(held) // the server sends it with the end of the body, in one piece
	}
}

// judge returns why a stream that was read, or broke off with err, is no whole answer.
// An error that the agent told is the reason, also where who read it has left for it.
func (a *answer) judge(t *tap, err error) error {
	switch {
	case t.failure != "" && (a.ctx.Err() == nil || errors.Is(context.Cause(a.ctx), errCallerLeft)):
		return t.close()
	case err != nil:
		return err
	}
	if err = t.close(); err != nil && a.ctx.Err() != nil {
		err = transportError(a.ctx, err) // an agent in this process just stops when it is cut
	}
	return err
}

// endStream settles a stream that is whole, unless it is no answer to who asked.
func (a *answer) endStream(t *tap, kept http.Header, held []byte) error {
	x, g := a.exchange, a.gateway
	if t.mute {
		u := t.usageOr(x)
		g.void(a.r.Context(), x, errSilent, u, x.target.cost(u))
		return nil
	}
	reply := agentbus.StoredReply{Status: a.resp.StatusCode, Header: kept, Body: a.rest(held)}
	return a.settle(reply, t.usageOr(x), a.total > g.cfg.MaxReply)
}

// rest returns the pending bytes with the end of the stream behind them. Where there
// is room for it, it stands behind what duplicates read, who do not see it there
// before it is published: that puts the same bytes there.
func (a *answer) rest(held []byte) []byte {
	if a.pending() == nil {
		return held
	}
	return append(a.exchange.flight.body[a.batched:], held...)
}

// takesTrailers reports whether who sent h reads trailers: it says so (RFC 9110,
// section 6.5.1), or it negotiates codings, as whole HTTP libraries do. A small
// client that does neither may take a trailer for the next answer.
func takesTrailers(h http.Header) bool {
	negotiates := slices.ContainsFunc(h["Accept-Encoding"], func(codings string) bool { return codings != "identity" })
	return negotiates || strings.Contains(strings.ToLower(strings.Join(h["Te"], ",")), "trailers")
}

// errEnded stops reading a stream that has told its end.
var errEnded = errors.New("the stream has ended")

// readStream passes the stream on, but for its end, which it returns.
func (a *answer) readStream(t *tap) (held []byte, err error) {
	err = a.read(func(b []byte) error {
		at := t.feed(b)
		switch {
		case len(held) > 0 && !t.done && !t.ending(): // it only looked like the end
			b, held = append(held, b...), nil
		case len(held) > 0:
			b, held = nil, append(held, b...)
		case at >= 0:
			b, held = b[:at], append(held, b[at:]...)
		}
		if err := a.take(b); err != nil {
			return err
		}
		if t.ended || len(held) > maxTapped { // or an end that does not end
			return errEnded
		}
		return nil
	})
	if errors.Is(err, errEnded) {
		err = nil
	}
	return held, err
}

// take passes a piece of a stream on and stores it with the next batch.
func (a *answer) take(b []byte) error {
	if len(b) > 0 {
		_ = a.write(b) // never fails for a call
		if len(a.pending()) == 0 {
			a.since = time.Now()
		}
		a.exchange.flight.publish(b, a.gateway.cfg.MaxReply)
		a.total += int64(len(b))
	}
	if n := len(a.pending()); n == 0 || n < batchBytes && a.gateway.beat(a.since) == a.gateway.beat(time.Now()) {
		return nil
	}
	return a.store()
}

// pending are the bytes passed on that are not stored, nor being stored. They are
// what duplicates read, and do not change; of an answer that is not kept there
// are none.
func (a *answer) pending() []byte {
	if a.total > a.gateway.cfg.MaxReply {
		return nil
	}
	return slices.Clip(a.exchange.flight.body[a.batched:]) // this goroutine alone adds to it
}

// beat counts the times at which streams store what they hold. It is the same for
// all of them, so that their batches share commits.
func (l *live) beat(at time.Time) int64 { return int64(at.Sub(l.began) / batchTime) }

// store stores the pending bytes beside the stream, which goes on meanwhile. It
// waits for those before and fails when they could not be stored.
func (a *answer) store() error {
	if err := a.stored(); err != nil {
		return err
	}
	x, batch, done := a.exchange, a.pending(), make(chan error, 1)
	a.batched, a.stores, a.appended = a.batched+len(batch), done, true
	go func() { // stored waits for it
		faults.At(faults.AppendBefore)
		err := a.gateway.cfg.Ledger.Append(context.WithoutCancel(a.r.Context()), x.record.ID, x.attempt, batch)
		faults.At(faults.AppendAfter)
		done <- err
	}()
	return nil
}

// stored waits until what store began is over.
func (a *answer) stored() error {
	if a.stores == nil {
		return nil
	}
	err := <-a.stores
	a.stores = nil
	return err
}

// cutStream ends a stream that failed: an error event says why, and the
// connection is cut without the event that ends a whole stream (G15).
func (a *answer) cutStream(err error, t *tap) {
	x := a.exchange
	x.failed = err
	u := t.usageOr(x)
	a.gateway.void(a.r.Context(), x, err, u, x.target.cost(u))
	_ = a.write(x.errorEvent(err)) // the cut says it too
	x.cut(err)
}

// drain reads what an agent sends behind the end of its stream, so that the
// connection can be used again. It gives the agent a moment only, since the
// caller waits for it. It returns held with the line feed, if that comes, of a last
// line that has ended in a carriage return.
func (a *answer) drain(held []byte, carriage bool) []byte {
	patience := time.AfterFunc(drainTime, func() { a.cancel(errEnded) })
	defer patience.Stop()
	if carriage {
		if n, _ := a.resp.Body.Read(a.little[:1]); n == 1 && a.little[0] == '\n' {
			held = append(held, '\n')
		}
	}
	if _, err := io.CopyN(io.Discard, a.resp.Body, batchBytes); err != nil && !errors.Is(err, io.EOF) {
		a.gateway.log.LogAttrs(a.ctx, slog.LevelDebug, "connection not reused", slog.Any("error", err))
	}
	return held
}
