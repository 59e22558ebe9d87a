package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus/internal/http1"
)

// roundTrip sends the request. A connection that failed before any of the body
// was read from us, so that no agent can have executed anything, is followed by
// another: to a URL that was not tried yet, or to the first one again. There is
// one more try than URLs at most; the attempt in the ledger is one (G13). The
// try that has an answer is the caller's to end.
func (g *Gateway) roundTrip(ctx context.Context, x *exchange, r *http.Request) (*http.Response, try, error) {
	var tried uint64
	for left := len(x.target.upstreams().list); ; left-- {
		t := x.target.upstreams().begin(x, tried)
		body := &upload{r: bytes.NewReader(g.bodyOut(x))}
		resp, err := x.transport().RoundTrip(g.outbound(ctx, x, r, t.to, body))
		if err == nil {
			if resp.StatusCode < http.StatusInternalServerError {
				t.answered()
			}
			return resp, t, nil
		}
		g.endTry(ctx, x, t, failure(ctx))
		if left == 0 || ctx.Err() != nil || !unsent(err, body) && !x.repeatable() {
			return nil, t, err
		}
		tried |= t.bit
		g.log.LogAttrs(ctx, slog.LevelInfo, "connection failed, trying again", slog.String("request_id", x.requestID),
			slog.String("agent", x.target.Name), slog.String("url", t.to.name), slog.String("error", x.redact(err.Error())))
	}
}

// endTry says what became of a try, and logs what follows from it.
func (g *Gateway) endTry(ctx context.Context, x *exchange, t try, v verdict) {
	if until := t.end(v); !until.IsZero() {
		g.log.LogAttrs(ctx, slog.LevelWarn, "URL left out", slog.String("agent", x.target.Name), slog.String("url", t.to.name), slog.Time("until", until))
	}
}

// failure says what a request without an answer tells of its URL: nothing when
// it was ended from here, unless that was for want of an answer in time.
func failure(ctx context.Context) verdict {
	if ctx.Err() == nil || context.Cause(ctx) == errTooLong { //nolint:errorlint // causes are set as they are
		return bad
	}
	return unknown
}

// unsent reports whether a request that failed with err has certainly not left
// this process. One without a body tells so only by failing to connect, where
// the transport does not say.
func unsent(err error, body *upload) bool {
	if errors.Is(err, http1.ErrUnsent) {
		return true
	}
	if body.r.Size() > 0 {
		return !body.read.Load()
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// An upload is a request body that tells whether any of it was asked for. It is
// no *bytes.Reader, so the transport cannot rewind it and send it twice (G11).
type upload struct {
	r    *bytes.Reader
	read atomic.Bool
}

func (u *upload) Read(p []byte) (int, error) {
	u.read.Store(true)
	return u.r.Read(p)
}

// WriteTo spares the transport a buffer.
func (u *upload) WriteTo(w io.Writer) (int64, error) {
	u.read.Store(true)
	return u.r.WriteTo(w)
}

// Close does nothing: the bytes are the exchange's.
func (u *upload) Close() error { return nil }

// A verdict is what a try tells of its URL.
type verdict int

const (
	unknown verdict = iota // nothing
	good                   // it answers
	bad                    // it does not, or no better than not at all
)

// A try is one request to one URL. An attempt of the ledger has several only as
// long as nothing of it was sent.
type try struct {
	pool  *pool
	to    *upstream
	bit   uint64 // of the URL, in the set of those tried
	era   int64  // of the URL, when it began
	probe bool   // the one request that finds out whether a URL is back
}

// answered tells that a good answer has begun. It is all that a probe had to
// find out: a stream may go on for long.
func (t *try) answered() {
	if !t.probe {
		return
	}
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	if t.probe = false; t.era == t.to.era.Load() {
		t.to.back()
	}
}

// back makes u one of the healthy. pool.mu is held.
func (u *upstream) back() {
	u.failures.Store(0)
	u.until, u.ejections, u.probing = time.Time{}, 0, false
}

// out leaves u out for so long. pool.mu is held.
func (u *upstream) out(until time.Time) {
	u.ejections++
	u.era.Add(1)
	u.until, u.probing = until, false
}

// end counts the try as over. It returns until when its URL is left out because
// of it, or the zero time. What began before the last ejection says nothing of
// what the URL is like since.
func (t *try) end(v verdict) (until time.Time) {
	u := t.to
	u.inFlight.Add(-1)
	if !t.probe && (v == unknown || v == good && u.failures.Load() == 0) {
		return time.Time{} // the way of nearly every call: nothing to change
	}
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	if t.era != u.era.Load() {
		return time.Time{}
	}
	if t.probe {
		u.probing = false
	}
	switch v {
	case good:
		u.back()
	case bad:
		n := u.failures.Add(1)
		if len(t.pool.list) > 1 && (!u.until.IsZero() || n >= int64(t.pool.eject.Failures)) {
			u.out(t.pool.now().Add(t.pool.eject.after(u.ejections + 1)))
			return u.until
		}
	case unknown:
	}
	return time.Time{}
}
