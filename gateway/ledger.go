package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

const maxIdempotencyKey = 512

// ledger answers a duplicate from memory or attaches it to the call in flight,
// and reserves every other call durably before it goes on (G20 to G23). Only
// POST is a call; anything else passes and is recorded.
func (g *Gateway) ledger(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if r.Method != http.MethodPost {
			x.record.State = agentbus.CallPassed
			next.ServeHTTP(w, r)
			return
		}
		idempotencyKey, err := readIdempotencyKey(r.Header)
		if err != nil {
			x.refuse(w, err)
			return
		}
		key, mint := x.key(idempotencyKey)
		digest := digestOf(r.Method, x.path, r.URL.RawQuery, x.body)
		x.record.Digest = digest
		f, leads := g.flights.join(key, digest)
		if !leads && f.digest != digest && g.cfg.ExecuteMismatch {
			key = mismatched(x, key, digest)
			f, leads = g.flights.join(key, digest)
		}
		if !leads {
			g.attach(w, r, x, f)
			return
		}
		g.lead(w, r, x, next, agentbus.Reservation{Key: key, MintTurn: mint}, f)
	})
}

// lead reserves the call and executes it, or answers it from memory.
func (g *Gateway) lead(w http.ResponseWriter, r *http.Request, x *exchange, next http.Handler, want agentbus.Reservation, f *flight) {
	err := errLeaderGone // what duplicates read when the lines below panic
	defer func() {
		if x.failed != nil {
			err = x.failed
		}
		g.flights.leave(want.Key, f)
		f.end(err)
	}()
	x.flight = f
	got, reserveErr := g.reserve(r.Context(), x, &want, f)
	if reserveErr != nil {
		err = reserveErr
		x.refuse(w, err)
		return
	}
	f.change(func() { f.call = got.Call })
	switch got.Outcome {
	case agentbus.OutcomeExecute:
		x.record, x.attempt = got.Call, got.Call.Attempts
		x.record.State = agentbus.CallExecuting
		x.lineage.Run, x.lineage.Turn = got.Call.Run, got.Call.TurnKey.ID
		next.ServeHTTP(w, r)
		err = nil
	case agentbus.OutcomeSettled:
		f.change(func() { f.status, f.header, f.body = got.Reply.Status, got.Reply.Header, got.Reply.Body })
		err = nil
		x.replay(w, got.Call, "hit", got.Reply)
	case agentbus.OutcomeExpired:
		err = errReplyExpired
		x.refuse(w, err)
	case agentbus.OutcomeMismatch:
		err = errTurnMismatch
		x.refuse(w, err)
	case agentbus.OutcomeInFlight:
		err = errElsewhere
		x.refuse(w, err)
	}
}

var (
	errTurnMismatch = &agentbus.Error{
		Code: agentbus.CodeTurnMismatch, Message: "this turn was sent before with another request",
		Explain: &agentbus.Explain{Rule: "G20", Next: "send the request of the first time again, or give this one a turn id of its own"},
	}
	errReplyExpired = &agentbus.Error{
		Code: agentbus.CodeReplyExpired, Message: "this turn was answered before, and its answer is no longer kept",
		Explain: &agentbus.Explain{Rule: "G25", Next: "give the call a turn id of its own to execute it again"},
	}
	errElsewhere = &agentbus.Error{
		Code: agentbus.CodeOverloaded, Message: "another process is still executing this turn",
		Explain: &agentbus.Explain{Rule: "G22", Next: "send the same turn again after the given time"}, RetryAfter: time.Second,
	}
	errLeaderGone = error(&agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the execution of this turn failed",
		Explain: &agentbus.Explain{Rule: "G22", Next: "send the same turn again"},
	})
)

// reserve asks the ledger, and takes over what a dead process left executing
// (G24). A call that another living process executes is waited for.
func (g *Gateway) reserve(ctx context.Context, x *exchange, want *agentbus.Reservation, f *flight) (agentbus.Reserved, error) {
	x.fill()
	want.Call = x.record
	want.Call.Owner, want.Call.State = g.cfg.Owner, ""
	if want.MintTurn != "" {
		want.Call.TurnKey.ID = ""
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		got, err := g.cfg.Ledger.Reserve(ctx, *want)
		if err != nil {
			return got, err
		}
		switch {
		case got.Outcome == agentbus.OutcomeMismatch && g.cfg.ExecuteMismatch:
			old := want.Key
			want.Key = mismatched(x, want.Key, f.digest)
			want.Call.Notes = x.notes
			g.flights.rename(old, want.Key, f)
			continue
		case got.Outcome != agentbus.OutcomeInFlight:
			return got, nil
		case got.Call.Owner == g.cfg.Owner || !g.cfg.Alive(got.Call.Owner):
			want.TakeOver = got.Call.Owner
			continue
		}
		select {
		case <-ctx.Done():
			return got, errElsewhere
		case <-time.After(wait):
		}
	}
}

// mismatched gives a turn that came again with another request a key of its own
// (ledger.on_mismatch: execute).
func mismatched(x *exchange, key, digest agentbus.Digest) agentbus.Digest {
	x.note("turn_reused")
	return sha256.Sum256(append(key[:], digest[:]...))
}

func readIdempotencyKey(h http.Header) (string, error) {
	values := h["Idempotency-Key"]
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1, values[0] == "", len(values[0]) > maxIdempotencyKey:
		return "", invalidRequest("Idempotency-Key must be sent once, with 1 to 512 characters", "send one Idempotency-Key, or none")
	}
	return values[0], nil
}

// digestOf is the SHA-256 of a request: method, path, query and body (G20).
func digestOf(method, path, query string, body []byte) (d agentbus.Digest) {
	h := sha256.New()
	var head [256]byte
	b := append(append(append(head[:0], method...), ' '), path...)
	if query != "" {
		b = append(append(b, '?'), query...)
	}
	h.Write(append(b, '\n'))
	h.Write(body)
	h.Sum(d[:0])
	return d
}

// attach waits for the call in flight and gives its answer to a duplicate: for
// a stream the frames so far, then the live ones (G22).
func (g *Gateway) attach(w http.ResponseWriter, r *http.Request, x *exchange, f *flight) {
	if f.digest != x.record.Digest {
		x.refuse(w, errTurnMismatch)
		return
	}
	sent, began := 0, false
	for {
		v := f.view(sent)
		if !began && v.readable() {
			began = true
			x.replayHead(w, v.call, "attached", v.status, v.header)
		}
		if began && len(v.body) > 0 {
			n, err := w.Write(v.body)
			if sent += n; err != nil {
				return // this caller left; the call goes on
			}
			_ = http.NewResponseController(w).Flush() // a writer that cannot flush does not buffer
		}
		switch {
		case began && (v.over || v.err != nil):
			panic(http.ErrAbortHandler) //nolint:forbidigo // the answer broke off; its copy must not look whole
		case began && v.ended:
			g.countReplay(r.Context(), x, v.call)
			return
		case v.err != nil:
			x.refuse(w, v.err)
			return
		case v.over || v.ended:
			x.refuse(w, errReplyExpired)
			return
		}
		select {
		case <-v.change:
		case <-r.Context().Done():
			return
		}
	}
}

// readable reports whether a duplicate can be answered by now: a stream once it
// has begun, anything else once it is whole.
func (v *view) readable() bool {
	return v.status != 0 && v.err == nil && !v.over && (v.ended || isSSE(v.header))
}

func (g *Gateway) countReplay(ctx context.Context, x *exchange, call agentbus.CallRecord) {
	if err := g.cfg.Ledger.Replayed(context.WithoutCancel(ctx), call.ID); err != nil {
		g.log.LogAttrs(ctx, slog.LevelError, "replay not counted", slog.String("request_id", x.requestID), slog.Any("error", err))
	}
}

// replay answers from memory: the same status and body, to the byte, amount 0
// (G23).
func (x *exchange) replay(w http.ResponseWriter, call agentbus.CallRecord, how string, reply *agentbus.StoredReply) {
	x.replayHead(w, call, how, reply.Status, reply.Header)
	_, _ = w.Write(reply.Body) // a caller that left may ask again
}

func (x *exchange) replayHead(w http.ResponseWriter, call agentbus.CallRecord, how string, status int, header http.Header) {
	x.record.State, x.record.Status, x.record.Attempts = call.State, status, call.Attempts
	x.lineage.Run, x.lineage.Turn = call.Run, call.TurnKey.ID // those first minted (P7)
	h := w.Header()
	for k, v := range header {
		h[k] = v
	}
	x.echo(h)
	h["X-Request-Id"] = []string{call.RequestID} // the one that was executed
	h["X-Agentbus-Replay"] = []string{how}
	h["X-Agentbus-Attempts"] = []string{strconv.Itoa(max(call.Attempts, 1))}
	h["X-Agentbus-Cost-Usd"] = []string{agentbus.Micros(0).USD()}
	if call.State == agentbus.CallSettled {
		h["X-Agentbus-Turn-Cost-Usd"] = []string{call.Cost.USD()}
	}
	x.wrote = true
	w.WriteHeader(status)
}

// isFinal reports whether an agent's answer with this status settles its call.
// Others say "later": the caller reads them as they are, the key stays free
// (G23).
func isFinal(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status < http.StatusInternalServerError
}

var errAborted = errors.New("the bus is shutting down")
