package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
)

const maxIdempotencyKey = 512

// ledger answers a duplicate of a call that is in flight by attaching it, and
// leads every other call on to the ledger's word (G20, G22). Only POST is a call;
// anything else passes and is recorded.
func (g *Gateway) ledger(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if !x.isCall(r) {
			x.record.State = agentbus.CallPassed
			next.ServeHTTP(w, r)
			return
		}
		idempotencyKey, err := readIdempotencyKey(r.Header)
		if err != nil {
			x.refuse(w, err)
			return
		}
		if idempotencyKey == "" {
			idempotencyKey = x.messageKey()
		}
		x.want.key, x.want.mint = x.key(idempotencyKey)
		x.want.again = idempotencyKey != "" || !x.minted
		x.digest(r)
		mismatch := g.once(w, r, x, next)      //nolint:contextcheck // what ends a call is written for a caller that has left, too
		if mismatch && g.cfg.ExecuteMismatch { // a call of its own, with a key of its own
			x.note("turn_reused")
			x.want.key = sha256.Sum256(append(x.want.key[:], x.record.Digest[:]...))
			mismatch = g.once(w, r, x, next) //nolint:contextcheck // as above
		}
		if mismatch {
			x.refuse(w, errTurnMismatch)
		}
	})
}

// once executes the call, or answers it from memory or from the execution in
// flight. It answers nothing when the key turns out to stand for another request.
func (g *Gateway) once(w http.ResponseWriter, r *http.Request, x *exchange, next http.Handler) (mismatch bool) {
	f, leads := g.flights.join(x.want.key, x)
	switch {
	case leads:
		return g.lead(w, r, x, next, f)
	case f.digest != x.record.Digest:
		return true
	case g.goesRound(x, f):
		x.refuse(w, errCycle([]string{x.target.Name, x.target.Name}))
		return false
	}
	return g.attach(w, r, x, f)
}

// lead takes the call through the stages that remain, and then tells the
// duplicates that wait for it what became of it.
func (g *Gateway) lead(w http.ResponseWriter, r *http.Request, x *exchange, next http.Handler, f *flight) (mismatch bool) {
	err := errLeaderGone // what duplicates read when the lines below panic
	defer func() {
		if x.record.State == agentbus.CallExecuting { // they did: nothing else leaves a call so
			g.void(r.Context(), x, errPanicked, agentbus.Usage{}, 0)
		}
		if x.failed != nil {
			err = x.failed
		}
		x.leads = nil
		g.flights.leave(f)
		f.end(err)
	}()
	x.leads = f
	next.ServeHTTP(w, r)
	if err = nil; x.failed == errTurnMismatch { //nolint:errorlint // the one that reserve leaves
		err, mismatch, x.failed = x.failed, true, nil
	}
	return mismatch
}

// reserve asks the ledger for the right to execute the call, durably, or
// answers it from memory (G21, G23).
func (g *Gateway) reserve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if x.leads == nil { // no call
			next.ServeHTTP(w, r)
			return
		}
		x.want.recording = g.recording(x, r)
		got, err := g.afford(r.Context(), x)
		x.want.recording = nil // a stream may go on for long
		if err != nil {
			x.refuseOrLeave(w, err)
			return
		}
		if got.Outcome != agentbus.OutcomeExecute {
			g.giveBack(x) // nobody is called
		}
		if !g.known(w, r, x, got) {
			x.record, x.attempt, x.flight = got.Call, got.Call.Attempts, x.leads
			x.record.State = agentbus.CallExecuting
			next.ServeHTTP(w, r)
		}
	})
}

// known answers a call that the ledger does not let execute. It reports false
// when it does.
func (g *Gateway) known(w http.ResponseWriter, r *http.Request, x *exchange, got agentbus.Reserved) bool {
	f := x.leads
	f.change(func() { f.call = got.Call })
	if got.Outcome != agentbus.OutcomeMismatch {
		x.ownIDs(got.Call)
	}
	switch got.Outcome {
	case agentbus.OutcomeExecute:
		return false
	case agentbus.OutcomeSettled:
		f.change(func() { f.status, f.header, f.body = got.Reply.Status, got.Reply.Header, got.Reply.Body })
		g.flights.leave(f)
		x.replayHead(w, got.Call, "hit", got.Reply.Status, got.Reply.Header)
		faults.At(faults.ReplayAmid)
		_ = g.send(w, x.respeller(got.Reply.Header).feed(got.Reply.Body, true)) // a caller that left may ask again
		faults.At(faults.ReplayAfter)
	case agentbus.OutcomeExpired:
		x.refuse(w, errReplyExpired)
	case agentbus.OutcomeMismatch:
		x.failed = errTurnMismatch // which the ledger stage answers
	case agentbus.OutcomeInFlight:
		g.follow(w, r, x, got.Call)
	case agentbus.OutcomeShort:
		x.refuse(w, g.errShort(x, got.Short))
	}
	return true
}

var (
	errTurnMismatch = error(&agentbus.Error{
		Code: agentbus.CodeTurnMismatch, Message: "this turn was sent before with another request",
		Explain: &agentbus.Explain{Rule: "G20", Next: "send the request of the first time again, or give this one a turn id of its own"},
	})
	errReplyExpired = &agentbus.Error{
		Code: agentbus.CodeReplyExpired, Message: "this turn was answered before, and its answer is no longer kept",
		Explain: &agentbus.Explain{Rule: "G25", Next: "give the call a turn id of its own to execute it again"},
	}
	// errLeft is what duplicates read of a call whose caller left while it waited, when
	// they come at that moment: else it goes on for them.
	errLeft = error(&agentbus.Error{
		Code: agentbus.CodeOverloaded, Message: "the caller of this turn left while it waited",
		Explain: &agentbus.Explain{Rule: "G22", Next: "send the same turn again after the given time"}, RetryAfter: time.Second,
	})
	errOutcomeUnknown = &agentbus.Error{
		Code: agentbus.CodeOutcomeUnknown, Message: "this turn was being executed when its process died, and nobody knows what came of it",
		Explain: &agentbus.Explain{Rule: "G24", Next: "ask the operator to find out and to void the call, then send the same turn again"},
	}
	errLeaderGone = error(&agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the execution of this turn failed",
		Explain: &agentbus.Explain{Rule: "G22", Next: "send the same turn again"},
	})
)

// ask asks the ledger, and takes over what a dead process left executing, unless
// its agent is one where nobody may guess what came of it (G24). A call that
// another living process executes is waited for, if waits. A caller that leaves while
// the ledger writes does not undo it: there may be duplicates that wait for this
// call, and it goes on for the retry (G14).
func (g *Gateway) ask(ctx context.Context, x *exchange, waits bool) (agentbus.Reserved, error) {
	x.fill()
	want := agentbus.Reservation{Call: x.record, Key: x.want.key, MintTurn: x.want.mint, Hold: x.want.hold, Recording: x.want.recording}
	want.Call.Owner, want.Call.State = g.cfg.Owner, ""
	if want.MintTurn != "" {
		want.Call.TurnKey.ID = ""
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		ended, release := g.cfg.WatchCall(want.Key)
		faults.At(faults.ReserveBefore)
		got, err := g.cfg.Ledger.Reserve(context.WithoutCancel(ctx), want)
		faults.At(faults.ReserveAfter)
		again := err == nil && got.Outcome == agentbus.OutcomeInFlight && (waits || !g.livesElsewhere(&got.Call))
		if again {
			again, err = g.elsewhere(ctx, x, &want, got, ended, wait)
		}
		if release(); !again {
			return got, err
		}
	}
}

// elsewhere decides about a call that another process executes, and waits for it
// while that one lives: until it rings, or for as long as is given. It reports
// whether the ledger is to be asked again: not when that process tells the stream
// of the call by now, which can be followed.
func (g *Gateway) elsewhere(ctx context.Context, x *exchange, want *agentbus.Reservation, got agentbus.Reserved, ended <-chan struct{}, wait time.Duration) (again bool, err error) {
	switch {
	case g.stopped.has(want.Call.Run):
		return false, errRunStopped
	case g.livesElsewhere(&got.Call): // it is waited for
		if g.toldElsewhere(ctx, x, &got.Call) {
			return false, nil
		}
		if x.follows.call != 0 {
			wait = min(wait, lookFollowers)
		}
	case x.target.RefuseUnknown:
		return false, errOutcomeUnknown
	default:
		want.TakeOver = got.Call.Owner
		return true, nil
	}
	waits, stop := x.awaited(ctx)
	defer stop(nil)
	look := time.NewTimer(wait)
	defer look.Stop()
	select {
	case <-waits.Done():
		return false, g.waitEnded(ctx, x)
	case <-ended:
	case <-look.C:
	}
	return true, nil
}

// livesElsewhere reports whether another process that lives executes a call.
func (g *Gateway) livesElsewhere(call *agentbus.CallRecord) bool {
	return call.Owner != g.cfg.Owner && g.cfg.Alive(call.Owner)
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

// digest returns what is asked, as 32 bytes. It is computed once.
func (x *exchange) digest(r *http.Request) agentbus.Digest {
	if x.record.Digest == (agentbus.Digest{}) {
		x.record.Digest = digestOf(r.Method, x.path, r.URL.RawQuery, x.digested()...)
	}
	return x.record.Digest
}

// digestOf is the SHA-256 of a request: method, path, query and body (G20).
func digestOf(method, path, query string, body ...[]byte) (d agentbus.Digest) {
	h := sha256.New()
	var head [256]byte
	b := append(append(append(head[:0], method...), ' '), path...)
	if query != "" {
		b = append(append(b, '?'), query...)
	}
	h.Write(append(b, '\n'))
	for _, piece := range body {
		h.Write(piece)
	}
	h.Sum(d[:0])
	return d
}

// attach waits for the call in flight and gives its answer to a duplicate: for
// a stream the frames so far, then the live ones (G22).
func (g *Gateway) attach(w http.ResponseWriter, r *http.Request, x *exchange, f *flight) (mismatch bool) {
	sent, began, out := 0, false, g.outlet(w)
	f.attend(1)
	defer f.attend(-1)
	var respell *respeller
	for {
		v := f.view(sent)
		if !began && v.readable() {
			began = true
			x.ownIDs(v.call)
			x.replayHead(w, v.call, "attached", v.status, v.header)
			respell = x.respeller(v.header)
		}
		if began {
			if out.send(respell.feed(v.body, v.ended)) != nil {
				x.leave(w) // the call goes on
				return false
			}
			sent += len(v.body)
		}
		switch {
		case began && v.err != nil:
			g.breakOff(w, x, v.err)
		case began && v.over:
			g.breakOff(w, x, errReplyExpired)
		case began && v.ended:
			x.record.State = v.call.State
			g.countReplay(r.Context(), x, v.call)
			return false
		case v.err == errTurnMismatch: //nolint:errorlint // the one that lead ends a flight with
			return true
		case v.err != nil, v.over, v.ended:
			x.ownIDs(v.call)
			x.refuse(w, cmp.Or(v.err, error(errReplyExpired)))
			if v.call.ID != 0 { // the record of the call tells what failed; policy refused nothing here
				x.record.State = v.call.State
			}
			return false
		}
		select {
		case <-v.change:
		case <-r.Context().Done():
			x.leave(w)
			return false
		}
	}
}

// breakOff ends a stream that failed: an error event says why, and the connection
// is cut without the event that ends a whole stream (G15).
func (g *Gateway) breakOff(w http.ResponseWriter, x *exchange, err error) {
	_ = g.send(w, x.errorEvent(err)) // the cut says it too
	x.cut(err)
}

// cut ends an answer that broke off, so that it does not look whole.
func (x *exchange) cut(err error) {
	x.end(err)
	panic(http.ErrAbortHandler) //nolint:forbidigo // the server cuts the connection
}

// ownIDs gives a duplicate the ids that were first minted (P7).
func (x *exchange) ownIDs(call agentbus.CallRecord) {
	if call.Run != "" {
		x.lineage.Run, x.lineage.Turn = call.Run, call.TurnKey.ID
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

// replayHead begins an answer from memory: the same status, amount 0 (G23).
func (x *exchange) replayHead(w http.ResponseWriter, call agentbus.CallRecord, how string, status int, header http.Header) {
	x.record.State, x.record.Status, x.record.Attempts = call.State, status, call.Attempts
	h := w.Header()
	copyHead(h, header)
	x.echo(h)
	h["X-Request-Id"] = []string{call.RequestID} // the one that was executed
	h["X-Agentbus-Replay"] = []string{how}
	h["X-Agentbus-Attempts"] = []string{strconv.Itoa(max(call.Attempts, 1))}
	h["X-Agentbus-Cost-Usd"] = []string{agentbus.Micros(0).USD()}
	if call.State == agentbus.CallSettled {
		h["X-Agentbus-Turn-Cost-Usd"] = []string{x.target.turnCost(&call).USD()}
	}
	x.replay = how
	x.answering()
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

// settles reports whether an agent's answer with this status settles the call. To a
// driver of this bus no error does: the run is paused and, resumed, asks the agent
// again, which may be well by then (R16).
func (x *exchange) settles(status int) bool {
	return isFinal(status) && (status < http.StatusBadRequest || !x.driven())
}

var errAborted = errors.New("the bus is shutting down")
