package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/httpx"
)

// An exchange is what the stages know of one request. It belongs to the
// goroutine that serves the request.
type exchange struct {
	requestID string
	began     time.Time
	counted   time.Time // when it last asked for its budgets: those of the periods that this is in
	lineage   agentbus.Lineage
	named     bool                // the caller named the run
	minted    bool                // the turn id, or run and turn id, are ours (P7)
	auth      agentbus.Credential // the caller's own Authorization, as it came
	caller    agentbus.Principal
	certified bool // a certificate tells who the caller is: nobody has verified auth
	payer     agentbus.Payer
	inProcess *InProcess      // the call comes from a driver of this bus
	scope     *agentbus.Scope // the call comes from a program of this bus, inside of the turn it serves (B2)
	target    *Target
	path      string // below the agent's base, escaped
	body      []byte
	pinned    string // the URL of the target that it must go to; "": any
	peek      peek
	dialect   dialect
	envelope  *envelope           // of a request of A2A; nil: of another dialect
	above     above               // what is known of the call that this one is made inside of
	ancestors []agentbus.TurnKey  // the calls that it is made inside of, from that one upwards, as far as they are known
	evidence  []agentbus.Evidence // that the message brought along, verified (C22)
	hopIn     string              // the signed hop that was received and verified; "": none
	hopBefore string              // that of the turn which the call is made inside of, as it was sent; "": none
	// allowances are what the hops that were received leave for the call, and until is
	// when the time is over that its own one leaves; the zero time: never.
	allowances []allowance
	until      time.Time
	hop        string            // the one that goes to the agent; "": none (C16)
	hopNext    *agentbus.NextHop // those that go with the messages of a client in this process; nil: none do
	hopSigned  atomic.Bool       // one was: that client may do so while the answer is read
	hopExpired atomic.Bool       // and does not count any more
	notes      []string
	record     agentbus.CallRecord // what becomes of it
	seen       agentbus.Observation
	deadline   *time.Timer // of the upstream call; nil before, and for what has none
	wrote      bool        // the head of an answer is on its way
	left       bool        // the caller did, while it waited
	costTold   bool        // the agent said what the call cost
	replay     string      // how a duplicate was answered without executing: hit, attached; "": it was not
	// leads is set while this request leads its call: duplicates wait for what
	// becomes of it. want is what it asks of the ledger. flight and attempt are
	// set once it executes the call. failed is why it has no answer that
	// duplicates could be given.
	leads   *flight
	want    want
	flight  *flight
	attempt int
	failed  error
	follows execution // elsewhere, whose stream it has asked for
	// recorder keeps what people may read of the call; nil: nothing is kept.
	recorder *recorder
	// line is who waits for the agent when it is bounded; placed: the call has a
	// place there, since when. token: it took one of its caller's rate (G8).
	line   *line
	placed bool
	since  time.Time
	token  bool
}

// A want is what a call asks of the ledger, beside its record.
type want struct {
	key       agentbus.Digest
	mint      string // see agentbus.Reservation
	again     bool   // its caller knows the key, and may ask again for the same answer
	hold      agentbus.Hold
	recording *agentbus.Recording
}

// A dialect is what the gateway knows of the API that is called.
type dialect int

const (
	dialectOther     dialect = iota // any HTTP API, below /agents
	dialectChat                     // chat completions
	dialectResponses                // responses
	dialectA2A                      // A2A, below /a2a
)

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange) // every route that asks has passed recover
	return x
}

// InProcess says that a call comes from a driver inside this process, through
// the in-memory transport: its hop is counted already (P9), and who it is needs
// no credential.
type InProcess struct {
	Caller agentbus.Principal
	Payer  agentbus.Payer // who is billed
	// AgentOwned says that the agent pays for itself: nothing is forwarded on
	// the origin's behalf (P22).
	AgentOwned bool
	// Outside says that the call is one of a caller outside, which the face of
	// another dialect let in: its hop is not counted yet, and the rate of its caller
	// is. Minted: its run was made for it, and the caller named none.
	Outside, Minted bool
	// Declared says that the operator's configuration names whom the call goes
	// to: a list of agents that Caller has does not bound it (G6).
	Declared bool
	// Chain is the place of the call in the chain of agents (C4): no header has
	// it. nil: it is part of none.
	Chain *agentbus.AgentChain
	// Cued says that an agent of this process that is a program around a model is
	// told that place (C9).
	Cued bool
	// Inline says that mentions in the answer are relayed by who calls (C14).
	Inline bool
	// Model is what the agent, which is a model, is asked for in place of its own;
	// "": its own (E7).
	Model string
	// Within are the calls that this one is made inside of, from the nearest
	// upwards, as far as the bus knows them and looks (G7).
	Within []agentbus.TurnKey
	// Evidence is what was verified of a call that this one is made for, such as
	// that of the message which the face of an agent answers (C22). It goes on to
	// agents of A2A (C25); an ACL is asked of it for a call from Outside only.
	Evidence []agentbus.Evidence
	// Hop is the signed hop that such a call came with, verified (C16); "": none.
	Hop string
}

type inProcessKey struct{}

// WithInProcess marks the calls made under ctx as a driver's of this process.
// The mark is a value of the context and cannot be sent over a wire.
func WithInProcess(ctx context.Context, p InProcess) context.Context {
	return context.WithValue(ctx, inProcessKey{}, &p)
}

// InProcessOf returns the mark of [WithInProcess]. An agent that lives in this
// process finds there whom its caller's bill goes to.
func InProcessOf(ctx context.Context) (InProcess, bool) {
	if p, ok := ctx.Value(inProcessKey{}).(*InProcess); ok {
		return *p, true
	}
	return InProcess{}, false
}

// driven reports whether a driver of this process makes the call, for a turn of its
// own.
func (x *exchange) driven() bool { return x.inProcess != nil && !x.inProcess.Outside }

// needsWords reports whether an answer without a word is none: to a driver (R16).
func (x *exchange) needsWords() bool { return x.driven() && x.dialect == dialectChat }

func newExchange(r *http.Request) *exchange {
	x := &exchange{requestID: httpx.NewRequestID(), began: time.Now().UTC(), envelope: envelopeOf(r)}
	x.inProcess, _ = r.Context().Value(inProcessKey{}).(*InProcess)
	return x
}

// asked returns the name by which the caller asked for the agent.
func (x *exchange) asked() string { return cmp.Or(x.record.Agent, x.peek.model) }

func (x *exchange) note(s string) { x.notes = append(x.notes, s) }

func (x *exchange) noted(s string) bool { return slices.Contains(x.notes, s) }

// origin returns the caller's own credential as the origin's, which travels on
// (P21); none when the caller is known by its certificate, which cannot travel.
func (x *exchange) origin() agentbus.Credential {
	if x.certified {
		return agentbus.Credential{}
	}
	return x.auth
}

// redact takes the credentials of the call out of what an agent said, before it
// is stored or logged as ours (P19).
func (x *exchange) redact(s string) string {
	s = x.auth.Redact(x.lineage.Auth.Redact(s))
	if x.target != nil {
		s = x.target.Authorization.Redact(s)
		for _, secret := range x.target.Secrets {
			s = secret.Redact(s)
		}
	}
	return s
}

// echo sets the headers that stand on every answer.
func (x *exchange) echo(h http.Header) {
	values := []string{x.requestID, string(x.lineage.Run), string(x.lineage.Turn)}
	h["X-Request-Id"] = values[0:1:1]
	if x.lineage.Run != "" {
		h["X-Tangle-Runid"] = values[1:2:2]
	}
	if x.lineage.Turn != "" {
		h["X-Tangle-Turnid"] = values[2:3:3]
	}
}

// refuse ends the request with one of our own errors. What goes into the record
// is the code and the message that the caller reads.
func (x *exchange) refuse(w http.ResponseWriter, err error) {
	x.end(err)
	if x.leads != nil && x.failed == nil {
		x.failed = err
	}
	x.echo(w.Header())
	if x.attempt > 0 {
		w.Header()["X-Agentbus-Attempts"] = []string{strconv.Itoa(x.attempt)}
	}
	x.answering()
	x.writeError(w, err)
}

// leave ends the request of a caller that left while it waited for an answer: no
// refusal, and nothing of its own in the ledger. Who has closed only its own side
// still reads, and must take nothing that it reads for a whole answer (G23).
func (x *exchange) leave(w http.ResponseWriter) {
	if x.left = true; x.leads != nil {
		x.failed = errLeft // who attached at the last moment comes again
	}
	if x.replay == "" {
		x.record.State = ""
	}
	if x.wrote {
		panic(http.ErrAbortHandler) //nolint:forbidigo // the server cuts the connection
	}
	x.echo(w.Header())
	x.wrote = true // but it is no answer, whose first byte would be measured
	x.writeError(w, errLeft)
}

// awaited returns a context that ends when nobody waits for the call any more: its
// caller has left, and no duplicate is attached (G22). A driver of this bus waits for
// the end of what it aborts.
func (x *exchange) awaited(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	f := x.leads
	if f == nil || x.inProcess != nil {
		return context.WithCancelCause(ctx)
	}
	waits, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { // ends with waits at the latest
		f.untilAlone(waits)
		cancel(errCallerLeft)
	})
	return waits, func(cause error) {
		stop()
		cancel(cause)
	}
}

// refuseOrLeave ends a request that waited in vain.
func (x *exchange) refuseOrLeave(w http.ResponseWriter, err error) {
	if err == errLeft { //nolint:errorlint // it is returned as it is
		x.leave(w)
		return
	}
	x.refuse(w, err)
}

// end records what one of our own errors made of the request.
func (x *exchange) end(err error) {
	e := agentbus.AsError(err)
	x.record.Code, x.record.Message, x.record.Status = e.Code, e.Message, x.statusOf(e)
	if x.envelope != nil {
		if told, ok := errors.AsType[*a2a.Error](err); ok && told.Err != nil && told.Status != 0 {
			x.record.Status = told.Status // as the caller reads it: of a method that a path does not take it is 405
		}
	}
	if x.record.State == "" {
		x.record.State = agentbus.CallRefused
	}
}

// key returns the ledger's key of the call (G20), and for a call whose turn id
// must be minted in the ledger's transaction the slug to mint it with.
func (x *exchange) key(idempotencyKey string) (key agentbus.Digest, mint string) {
	k := x.turnKey()
	switch {
	case idempotencyKey != "" && x.minted:
		k.ID = ""
		if x.lineage.Turn != "" { // the run is minted too
			k.Run = ""
		} else {
			mint = x.target.Name
		}
		return k.Hash("idempotency-key", idempotencyKey), mint
	case x.minted && x.lineage.Turn == "":
		return x.inOrder(k.Hash("minted", x.requestID)), x.target.Name
	case x.minted:
		return x.inOrder(k.Hash("minted", x.requestID)), ""
	}
	return k.Hash(), ""
}

// inOrder returns d as a key that nobody computes again, with the time in front:
// those of one moment stand side by side in the store, which writes fewer pages
// for them.
func (x *exchange) inOrder(d agentbus.Digest) agentbus.Digest {
	binary.BigEndian.PutUint64(d[:8], uint64(x.began.UnixMicro())) // no clock is before 1970
	return d
}

func (x *exchange) turnKey() agentbus.TurnKey {
	return agentbus.TurnKey{
		Payer: x.payer, Agent: x.target.Name, Run: x.lineage.Run,
		Path: x.lineage.Path, Parent: x.lineage.Parent, ID: x.lineage.Turn,
	}
}

// fill completes the record with what the stages found.
func (x *exchange) fill() {
	c := &x.record
	c.Payer, c.Run, c.Path, c.Parent, c.TurnKey.ID = x.payer, x.lineage.Run, x.lineage.Path, x.lineage.Parent, x.lineage.Turn
	if x.target != nil {
		c.Agent = x.target.Name
	} else if c.Agent == "" {
		c.Agent = x.peek.model
	}
	c.RequestID, c.Caller, c.Speaker, c.Depth = x.requestID, x.caller.ID, x.lineage.Speaker, x.lineage.Depth
	c.Chain = x.lineage.Chain
	c.Stream, c.Notes, c.Began = x.peek.stream, x.notes, x.began
}
