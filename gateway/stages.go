package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/faults"
	"github.com/agentbus/agentbus/internal/httpx"
)

// recover makes a panic cost one call and not the process. The caller reads an
// internal error, or an aborted answer when part of one is out already.
func (g *Gateway) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := newExchange(r)
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		defer func() { //nolint:contextcheck // the exchange goes down with the request, not its context alone
			switch p := recover(); p {
			case nil:
				return
			case http.ErrAbortHandler:
				panic(p) //nolint:forbidigo // the server cuts the answer off, which is what it is for
			default:
				g.log.LogAttrs(r.Context(), slog.LevelError, "panic", x.where(),
					slog.String("panic", x.redact(fmt.Sprint(p))), slog.String("stack", string(debug.Stack())))
			}
			if x.wrote {
				panic(http.ErrAbortHandler) //nolint:forbidigo // as above
			}
			x.refuse(w, errPanicked)
		}()
		next.ServeHTTP(w, r)
	})
}

var errPanicked = &agentbus.Error{Code: agentbus.CodeInternal, Message: "the bus failed; its operator finds the cause in the log under this request id"}

// record writes the access log, one line a call (G32), and keeps what executed
// nothing: refusals, and requests that are no calls. An unauthenticated request
// leaves no entry (G2).
func (g *Gateway) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, returned := exchangeOf(r), false
		defer func() { //nolint:contextcheck // a record outlives its caller
			if !returned && x.record.Code == "" && !x.left {
				x.end(errPanicked) // recover, around this stage, answers so
			}
			x.fill()
			x.record.Ended = time.Now().UTC()
			state := x.record.State
			if x.payer != "" && (state == agentbus.CallRefused || state == agentbus.CallPassed) {
				// The caller has its answer: its leaving must not lose the record.
				faults.At(faults.RecordBefore)
				if err := g.keep(context.WithoutCancel(r.Context()), x); err != nil {
					g.log.LogAttrs(r.Context(), slog.LevelError, "record lost", slog.String("request_id", x.requestID), slog.Any("error", err))
				}
				faults.At(faults.RecordAfter)
			}
			g.access(r, x)
			g.tell(r, x)
		}()
		next.ServeHTTP(w, r)
		returned = true
	})
}

// recordKey makes the repeats of one refused turn one record (P12). A turn whose
// id the bus minted is never the same turn twice.
func (g *Gateway) recordKey(x *exchange) agentbus.Digest {
	if x.minted || x.record.State != agentbus.CallRefused {
		return x.inOrder(x.record.Hash("record", x.requestID))
	}
	return x.record.Hash("refusal", string(x.record.Code), strconv.Itoa(x.lineage.Depth), strconv.Itoa(g.cfg.MaxDepth))
}

// A lineTaker is a handler of a log that takes the attributes of a line one by one.
// To gather those of a call in a record first is a third of what the line costs.
type lineTaker interface {
	HandleLine(ctx context.Context, r slog.Record, attrs iter.Seq[slog.Attr]) error
}

func (g *Gateway) access(r *http.Request, x *exchange) {
	if !g.log.Enabled(r.Context(), slog.LevelInfo) {
		return
	}
	line := slog.NewRecord(x.record.Ended, slog.LevelInfo, "call", 0) // where it was written is not asked for, and costs a walk of the stack
	if h, ok := g.log.Handler().(lineTaker); ok {
		_ = h.HandleLine(r.Context(), line, x.attrs(r)) // a log that cannot be written has nobody to tell
		return
	}
	line.AddAttrs(slices.Collect(x.attrs(r))...)
	_ = g.log.Handler().Handle(r.Context(), line) // as above
}

// attrs yields what the access log says of a call.
func (x *exchange) attrs(r *http.Request) iter.Seq[slog.Attr] {
	return func(yield func(slog.Attr) bool) {
		c := &x.record
		_ = yield(slog.String("request_id", x.requestID)) && yield(slog.String("method", r.Method)) && yield(slog.String("path", r.URL.Path)) &&
			yield(slog.String("run", string(c.Run))) && yield(slog.String("turn", string(c.TurnKey.ID))) && yield(slog.String("parent_turn", string(c.Parent))) &&
			yield(slog.Int("depth", c.Depth)) && yield(slog.String("speaker", c.Speaker.Wire())) && yield(slog.String("caller", c.Caller)) &&
			yield(slog.String("payer", string(c.Payer))) && yield(slog.String("agent", c.Agent)) && yield(slog.String("state", string(c.State))) && yield(slog.String("result", string(x.result()))) &&
			yield(slog.Int("status", c.Status)) && yield(slog.String("code", string(c.Code))) && yield(slog.Int("attempts", c.Attempts)) &&
			yield(slog.Int64("cost_micros", int64(c.Cost))) && yield(slog.Duration("took", c.Ended.Sub(c.Began))) && yield(x.traceAttr())
	}
}

// limits reads the body within its bounds (G3): over the size is 413, whether
// the size was declared or counted; over the time is 400.
func (g *Gateway) limits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		defer g.inFlight.Add(-1)
		if n := g.inFlight.Add(1); n > int64(g.cfg.InFlight) || g.drains(x) {
			x.refuse(w, g.shed(x, n))
			return
		}
		if r.ContentLength > g.cfg.MaxBody {
			w.Header()["Connection"] = []string{"close"} // the rest is not read
			x.refuse(w, g.tooLarge())
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			body, err := g.readBody(w, r)
			if err != nil {
				w.Header()["Connection"] = []string{"close"}
				x.refuse(w, err)
				return
			}
			x.body = body
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	timed, rc := false, http.NewResponseController(w)
	if !httpx.Arrived(r) {
		timed = rc.SetReadDeadline(time.Now().Add(g.cfg.BodyTimeout)) == nil // an in-memory caller has none
	}
	room := int64(512)
	if r.ContentLength >= 0 { // and one for the last, empty read; but a length that is only claimed takes no more than this
		room = min(r.ContentLength, 64<<10) + 1
	}
	body := make([]byte, 0, room)
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		if body = body[:len(body)+n]; int64(len(body)) > g.cfg.MaxBody {
			return nil, g.tooLarge()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &agentbus.Error{
				Code: agentbus.CodeInvalidRequest, Message: "the request body ended early or came too slowly", Err: err,
				Explain: &agentbus.Explain{Rule: "G3", Limit: g.cfg.BodyTimeout.String(), Next: "send the whole body"},
			}
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
	}
	if timed {
		_ = rc.SetReadDeadline(time.Time{}) // what works once works again
	}
	return body, nil
}

// drains reports whether the bus shuts down for x. A call that a driver of this
// process makes belongs to a run that is under way: it is let through, as live
// calls are (G31).
func (g *Gateway) drains(x *exchange) bool { return g.draining.Load() && x.inProcess == nil }

// shed says why a request is turned away before any work is done for it.
func (g *Gateway) shed(x *exchange, inFlight int64) error {
	if g.drains(x) {
		return errDraining
	}
	return &agentbus.Error{
		Code: agentbus.CodeOverloaded, Message: "the bus serves as many requests as it may",
		Explain: &agentbus.Explain{Rule: "G8", Observed: inFlight, Limit: g.cfg.InFlight, Next: "send the same turn again after the given time"},
	}
}

func (g *Gateway) tooLarge() error {
	return &agentbus.Error{
		Code: agentbus.CodeRequestTooLarge, Message: "the request body is over the limit of " + strconv.FormatInt(g.cfg.MaxBody, 10) + " bytes",
		Explain: &agentbus.Explain{Rule: "G3", Limit: g.cfg.MaxBody, Next: "send less, or ask the operator to raise limits.max_body"},
	}
}

// lineage reads the protocol headers (P1 to P7). A missing run is minted, and
// with it the turn; the turn of a run that the caller named is minted where the
// next free index is known, in the ledger.
func (g *Gateway) lineage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, h := exchangeOf(r), r.Header
		if e := x.envelope; e != nil {
			e.peek(x.body)
			if x.body = e.readMention(x.body); e.fault == nil && e.call.HasMetadata {
				h = a2a.MergeLineage(h, &e.call, x.body)
			}
		}
		l, err := agentbus.ParseLineage(h)
		if err != nil {
			x.refuse(w, err)
			return
		}
		if stripped := x.folded(r.Header); len(stripped) > 0 {
			x.note("stripped:" + strings.ToLower(strings.Join(stripped, "+")))
		}
		if x.inProcess != nil {
			l.Chain = x.inProcess.Chain
		}
		if e := x.envelope; e != nil && e.mention.Chain != nil {
			l.Chain = e.mention.Chain
		}
		x.lineage, x.named, x.minted = l, l.Run != "", l.Turn == ""
		g.place(x, l.TraceParent, l.TraceState)
		next.ServeHTTP(w, r)
	})
}

// identify authenticates the caller (G4). A driver of this process is known by
// its context.
func (g *Gateway) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if x.inProcess != nil {
			x.caller = x.inProcess.Caller
			next.ServeHTTP(w, r)
			return
		}
		if err := g.identifyCaller(r, x); err != nil {
			x.refuse(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Caller authenticates who sent a request that another room serves beside the
// gateway, in the same way as the callers of agents (G4). A program with the token
// of its turn is nobody there: that makes calls of the turn, and neither begins
// runs on another bill nor answers what was asked (B2, R22).
func (g *Gateway) Caller(r *http.Request) (agentbus.Principal, error) {
	var x exchange
	err := g.identifyCaller(r, &x)
	if err == nil && x.scope != nil {
		return agentbus.Principal{}, &agentbus.Error{
			Code: agentbus.CodeUnauthenticated, Message: "the token of a turn calls agents, and nothing else",
			Explain: &agentbus.Explain{Rule: "B2", Next: "use a key of the bus"},
		}
	}
	return x.caller, err
}

func (g *Gateway) identifyCaller(r *http.Request, x *exchange) (err error) {
	if len(r.Header["Authorization"]) > 1 {
		return errTwoCredentials
	}
	x.auth = agentbus.NewCredential(r.Header.Get("Authorization"))
	if g.cfg.CallTokens != nil {
		s, ours, err := g.cfg.CallTokens.Scope(x.auth)
		if ours {
			x.scope, x.caller, x.auth = &s, s.Caller, s.Lineage.Auth // it stands for the origin's credential
			return err
		}
	}
	if peers, ok := g.cfg.Identifier.(PeerIdentifier); ok && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		x.caller, x.certified, err = peers.IdentifyPeer(r.Context(), x.auth, r.TLS.VerifiedChains[0][0])
		return err
	}
	x.caller, err = g.cfg.Identifier.Identify(r.Context(), x.auth)
	if agentbus.CodeOf(err) == agentbus.CodeUnauthenticated && listed(r.Header.Get("Authorization")) {
		return errTwoCredentials
	}
	return err
}

var errTwoCredentials = &agentbus.Error{
	Code: agentbus.CodeDuplicateHeader, Message: "Authorization must be sent once, with one value",
	Explain: &agentbus.Explain{Rule: "P2", Next: "send one Authorization header without a comma"},
}

// listed reports whether a value that stands for nobody looks like two that a
// proxy has joined. Other schemes than that of keys have commas of their own.
func listed(authorization string) bool {
	scheme, rest, _ := strings.Cut(authorization, " ")
	return strings.EqualFold(scheme, "Bearer") && strings.Contains(rest, ",")
}

// payer decides who is billed, and sets the credential that travels on (P20 to
// P22): the forwarded one when the caller may forward, else the caller's own.
func (g *Gateway) payer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		var err error
		switch {
		case x.inProcess != nil && x.inProcess.AgentOwned:
			x.note("agent_owned")
			x.payer, x.lineage.Auth = x.inProcess.Payer, agentbus.Credential{}
		case x.inProcess != nil:
			x.payer = x.inProcess.Payer
		case x.scope != nil:
			x.payer = x.scope.Payer
			err = x.inScope()
		case x.lineage.Auth.IsZero():
			x.payer, x.lineage.Auth = agentbus.Payer(x.caller.ID), x.origin()
		case x.caller.InterAgent:
			err = g.payForwarded(r.Context(), x)
		case g.cfg.RefuseForwarded:
			err = &agentbus.Error{
				Code: agentbus.CodeUntrustedForwarder, Message: "this caller may not forward another's credential",
				Explain: &agentbus.Explain{Rule: "P20", Next: "leave " + agentbus.HeaderForwardedAuthorization + " out, or ask the operator for inter_agent: true on your key"},
			}
			x.payer = agentbus.Payer(x.caller.ID) // the refusal is the caller's
			_ = g.findTarget(r, x)                // so that the record names it
		default:
			x.note("forwarded_authorization_ignored")
			x.payer, x.lineage.Auth = agentbus.Payer(x.caller.ID), x.origin()
		}
		if err != nil {
			x.refuse(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// inScope makes a call of a program a call of the turn that it serves (B2). What
// it claims beside is refused, on the record of whoever pays for the turn.
func (x *exchange) inScope() error {
	if !x.lineage.Auth.IsZero() {
		x.note("forwarded_authorization_ignored")
	}
	l, err := x.scope.Within(x.lineage)
	if err == nil {
		x.lineage = l
	}
	return err
}

// payForwarded bills the forwarded credential's principal. One that does not
// verify is refused, never downgraded to the caller's (P20).
func (g *Gateway) payForwarded(ctx context.Context, x *exchange) error {
	p, err := g.cfg.Identifier.Identify(ctx, x.lineage.Auth)
	if agentbus.CodeOf(err) == agentbus.CodeUnauthenticated {
		explain := &agentbus.Explain{Rule: "P20", Next: "forward the origin's Authorization value as it came"}
		if cause := agentbus.AsError(err); cause.Explain != nil {
			explain.Observed = cause.Explain.Observed // such as expired
		}
		return &agentbus.Error{Code: agentbus.CodeUnauthenticated, Message: "the forwarded credential is not known here, or does not count", Err: err, Explain: explain}
	}
	if err != nil {
		return err
	}
	x.payer = agentbus.Payer(p.ID)
	return nil
}

// depth refuses a call at or above the limit (P10), before any upstream work
// and without asking the ledger, so a call below it is never answered from a
// remembered refusal (P12).
func (g *Gateway) depth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if err := x.lineage.CheckDepth(g.cfg.MaxDepth); err != nil {
			x.refuse(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}
