package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
)

// driver is one loop over one execution. It belongs to one goroutine.
type driver struct {
	conversation Conversation
	plan         Plan
	options      Options
	enclosing    *enclosing
	until        time.Time // when its time is up, or that of a run around it; zero: never

	execution agentbus.Execution
	lineage   agentbus.Lineage // that its calls are made from
	account   *account
	carried   map[int]agentbus.Turn // by index: found in the journal, in a step that has not ended
	turns     []agentbus.Turn
	latest    int      // place in turns of the first of the last step
	sent      []script // what each participant has been sent
	spent     agentbus.Micros
	tokens    int64                    // that the answers of turns took
	unwritten []agentbus.Event         // go with the next write
	refused   []agentbus.Event         // mentions of the last turn that were not relayed
	decided   map[int]decided          // by index: of what carried turns ask
	asking    []*intent                // turns that ask, which go with the halt
	parked    *fan                     // whose branches they are; nil: of none
	lacked    bool                     // it waited for the credential of its payer, and nobody has told that it came
	asked     *agentbus.Error          // the first that the run waits for
	left      []*intent                // turns in the middle of which the run halts
	own       map[agentbus.TurnID]bool // carried turns that it has begun itself

	// What it is called on the event wire.
	talk     string              // its conversation
	seed     string              // as it is told
	started  agentbus.RunStarted // how it was asked for
	nodes    []string            // of the participants
	refs     []agentbus.AgentRef // of the participants
	children []agentbus.Child    // what became of the last step of several

	yield func(Event, error) bool
	gone  bool // the reader has stopped reading
}

// intent is a turn that is to be performed.
type intent struct {
	turn    agentbus.Turn
	who     int // index of the participant
	lineage agentbus.Lineage
	owned   bool            // the participant pays for it itself
	held    agentbus.Micros // of the budget, for it
	fan     *fan            // instead of all but held: several turns at once
	decided decided         // of what it asked before
	hold    int             // of its events
	begun   int             // attempts when it was begun; 0: nobody was called
	tale    *tale           // of its answer; nil: it has not begun
	relayed bool            // it was given by a mention in the turn before it
	heir    *intent         // whom a mention in it gives the next turn; nil: nobody
}

var (
	errDeadline = errors.New("the run's deadline has passed")
	errGone     = errors.New("nobody follows the run any more")
)

// newDriver checks everything that can be checked without I/O.
func newDriver(ctx context.Context, c Conversation, o Options) (*driver, error) {
	if err := c.Validate(); err != nil {
		return nil, &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "conversation: " + err.Error()}
	}
	d := &driver{conversation: c, plan: c.plan(), enclosing: enclosingOf(ctx), own: map[agentbus.TurnID]bool{}}
	var err error
	if d.options, err = o.resolve(d.enclosing); err != nil {
		return nil, err
	}
	d.until = d.enclosing.ends(&d.options)
	if err := o.Lineage.CheckDepth(d.options.MaxDepth); err != nil {
		return nil, err
	}
	d.execution, d.lineage = d.options.execution(&c)
	if _, err := d.lineage.Next(d.lineage.Run.Turn(0, "x"), "x"); err != nil {
		return nil, err
	}
	d.sent = make([]script, len(c.Participants))
	var above *account
	switch {
	case d.enclosing != nil:
		above = d.enclosing.account
	case o.Budget != nil:
		above = &o.Budget.account
	}
	d.account = above.below(d.execution.ID, c.Budget)
	return d, nil
}

// run opens the execution and drives it.
func (d *driver) run(ctx context.Context) error {
	if ctx.Err() != nil {
		d.emit(Event{Type: EventHalted, Result: d.result(agentbus.Halt{Kind: agentbus.HaltAbort})})
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := d.open(ctx); err != nil {
		return err
	}
	if d.execution.State == agentbus.RunDone {
		if err := d.load(ctx); err != nil {
			return err
		}
		d.begun()
		d.emit(Event{Type: EventHalted, Result: d.result(*d.execution.Halt)})
		return nil
	}
	if !d.options.Deadline.IsZero() { // not before there is a run that it can halt
		var expire context.CancelFunc
		ctx, expire = context.WithDeadlineCause(ctx, d.options.Deadline, errDeadline)
		defer expire()
	}
	for drive := d.drive; ; {
		halt, err := d.leased(ctx, cancel, drive)
		if errors.Is(err, ErrLeave) {
			return errors.Join(err, d.handBack(ctx))
		}
		if halt == nil {
			return err
		}
		halted := d.halt(ctx, *halt)
		if len(d.asking) == 0 || agentbus.CodeOf(halted) != agentbus.CodeOverloaded {
			return errors.Join(err, halted)
		}
		drive = func(ctx context.Context, cancel context.CancelCauseFunc) (*agentbus.Halt, error) {
			next, halt, err := d.tooMany(ctx, halted)
			return d.turn(ctx, cancel, next, halt, err)
		}
	}
}

// leased drives while it renews the lease.
func (d *driver) leased(ctx context.Context, cancel context.CancelCauseFunc, drive func(context.Context, context.CancelCauseFunc) (*agentbus.Halt, error)) (*agentbus.Halt, error) {
	stop := d.keepLease(ctx, cancel)
	defer stop() // also when the reader of the events panics
	return drive(ctx, cancel)
}

// drive reads the journal and takes turns until it returns why the run halts.
// Without a halt, it may not go on: the journal stays as it is.
func (d *driver) drive(ctx context.Context, cancel context.CancelCauseFunc) (*agentbus.Halt, error) {
	if err := d.load(ctx); err != nil {
		if halt, left := stopped(ctx); halt != nil || errors.Is(left, ErrLeave) {
			if halt != nil && d.fresh(ctx) {
				d.begun()
			}
			return halt, left
		}
		return nil, errors.Join(err, d.giveBack(ctx))
	}
	d.begun()
	if d.options.Halt != nil && !d.callsNobody() {
		return d.options.Halt, nil
	}
	return d.loop(ctx, cancel)
}

// callsNobody reports whether the run lacks the credential of its payer and does not
// need it: the one turn that it waited for was denied, or nobody decided on it in
// time, so it fails without a call and the run halts (R18, R22).
func (d *driver) callsNobody() bool {
	if d.options.Halt.Kind != agentbus.HaltWaitingAuth || d.lacked || len(d.carried) != 1 {
		return false
	}
	for index := range d.carried {
		asked := d.decided[index]
		return asked.refused(d.conversation.OnHalt) != nil
	}
	return false
}

// fresh reports whether no driver has told that the run started.
func (d *driver) fresh(ctx context.Context) bool {
	if d.execution.Halt != nil {
		return false
	}
	for range d.options.Journal.Turns(context.WithoutCancel(ctx), d.execution.ID) { //nolint:errcheck // who reads the turns meets it again
		return false
	}
	return true
}

// giveBack leaves a run that halted before as it was found. One that did not was
// cut by a crash, and is left to whoever claims it.
func (d *driver) giveBack(ctx context.Context) error {
	if d.execution.Halt == nil {
		return d.handBack(ctx)
	}
	return d.options.Runs.Halt(context.WithoutCancel(ctx), d.execution.Lease, *d.execution.Halt)
}

// open creates or finds the execution, and claims it.
func (d *driver) open(ctx context.Context) error {
	asked := d.execution
	claim := agentbus.Claim{Owner: d.options.Owner, TTL: d.options.TTL, TakeOver: d.options.TakeOver}
	stored, err := d.options.Runs.Open(ctx, asked, claim)
	if agentbus.CodeOf(err) == agentbus.CodeRunConflict && d.enclosing.serves(&d.options.Lineage) && stored.Lease.Epoch > 0 {
		// Who drives it served an earlier attempt of the turn that is ours now.
		claim.TakeOver = stored.Lease.Epoch
		stored, err = d.options.Runs.Open(ctx, asked, claim)
	}
	if err != nil {
		return fmt.Errorf("open run %s: %w", asked.ID, err)
	}
	d.execution, d.lacked = stored, stored.Halt != nil && stored.Halt.Kind == agentbus.HaltWaitingAuth
	if err := differences(&stored, &asked); err != nil && !d.options.Force {
		if stored.State == agentbus.RunDone {
			return err
		}
		return errors.Join(err, d.giveBack(ctx))
	}
	return nil
}

// index returns which participant speaks under a name, or -1.
func (d *driver) index(s agentbus.Speaker) int {
	return slices.IndexFunc(d.conversation.Participants, func(p Participant) bool { return p.Name == s })
}

// begun tells that the run has started, or goes on.
func (d *driver) begun() {
	d.named()
	e := Event{Type: EventStarted}
	resumed := len(d.turns)+len(d.carried) > 0 || d.execution.Halt != nil // a driver before this one has said that it started
	if resumed {
		e.Type, e.Turns = EventResumed, slices.Clip(d.turns)
	}
	d.unwritten = append(d.unwritten, d.begins(resumed)...)
	d.emit(e)
}

// emit tells the reader, while there is one.
func (d *driver) emit(e Event) {
	if d.gone {
		return
	}
	e.Run, e.Execution = d.execution.Run, d.execution.ID
	d.gone = !d.yield(e, nil)
}

// event returns an event to be stored.
func (d *driver) event(kind string, turn agentbus.TurnID, data any) agentbus.Event {
	raw, _ := json.Marshal(data) // strings and numbers: it cannot fail
	return agentbus.Event{At: time.Now().UTC(), Type: kind, Execution: d.execution.ID, Run: d.execution.Run, Turn: turn, Data: raw}
}

// events returns the events to be written now.
func (d *driver) events(more ...agentbus.Event) []agentbus.Event {
	all := d.unwritten
	d.unwritten = nil
	return append(all, more...)
}

func (d *driver) result(h agentbus.Halt) *Result {
	return &Result{Run: d.execution.Run, Execution: d.execution.ID, Turns: slices.Clip(d.turns), Reply: d.reply(), Children: d.children, Halt: h, Spent: d.spent, asked: d.asked}
}

// reply is what the conversation answers, from the turns so far.
func (d *driver) reply() string {
	if f, ok := d.plan.(FanOut); ok && f.Synthesizer != "" && len(d.turns) > len(f.Ask) {
		return d.turns[len(d.turns)-1].Reply.Text
	}
	var b strings.Builder
	for i := range d.turns {
		t := &d.turns[i]
		if t.State != agentbus.TurnDone {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(d.conversation.line(t))
	}
	return b.String()
}

// halt stores why the run stopped, and says so. When there is no room for what its
// turns ask it fails with CodeOverloaded, and the run goes on: see tooMany.
func (d *driver) halt(ctx context.Context, h agentbus.Halt) error {
	h.Turns = len(d.turns)
	stopped := h.Error != nil && h.Error.Code == agentbus.CodeRunStopped
	if stopped { // it may have cut calls, and is no error of theirs
		h = *stop(d.whyStopped(ctx, d.recordable(h.Error)))
		h.Turns = len(d.turns)
	}
	switch h.Kind {
	case agentbus.HaltAbort:
		h.Failed = stopped // nobody may go on with it
	case agentbus.HaltBudget, agentbus.HaltParticipantError:
		h.Failed = d.conversation.OnHalt == OnHaltFail || h.Error != nil && rejected(h.Error)
	case agentbus.HaltWaiting, agentbus.HaltWaitingAuth, agentbus.HaltMaxTurns, agentbus.HaltDone, agentbus.HaltPredicate, agentbus.HaltDeadline, agentbus.HaltRecursionLimit:
	}
	if d.nodes == nil { // it halts before its journal was read
		d.named()
	}
	told := slices.Clip(d.unwritten)
	for _, now := range d.asking {
		told = append(told, d.told(now)...)
	}
	deserted, err := d.deserts(ctx, &h)
	if err != nil {
		return err
	}
	faults.At(faults.HaltBefore)
	if err := d.options.Runs.Halt(context.WithoutCancel(ctx), d.execution.Lease, h, slices.Concat(told, deserted, d.ends(&h))...); err != nil {
		return fmt.Errorf("halt run %s: %w", d.execution.ID, err)
	}
	faults.At(faults.HaltAfter)
	for _, now := range d.asking {
		d.emit(Event{Type: EventInterruptRequested, Turn: &now.turn, Branch: now.hold > 0})
	}
	if h.Wait != nil {
		h.Wait = &agentbus.Wait{Interrupts: h.Wait.Interrupts}
	}
	d.emit(Event{Type: EventHalted, Result: d.result(h)})
	return nil
}

// keepLease renews the lease every third of its time (R17) until stop is
// called, which waits for it. A lost lease cancels the run, and so
// does that it was stopped.
func (d *driver) keepLease(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	if _, ours := d.options.Runs.(*memory); ours {
		return func() {} // nobody else can claim it
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx)) // an abort still writes
	ended := make(chan struct{})
	lease := d.execution.Lease
	go func() {
		defer close(ended)
		tick := time.NewTicker(max(d.options.TTL/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			renewed, err := d.options.Runs.Renew(ctx, lease, d.options.TTL)
			switch {
			case err == nil:
				lease = renewed
			case agentbus.CodeOf(err) == agentbus.CodeLeaseLost, agentbus.CodeOf(err) == agentbus.CodeRunStopped:
				cancel(fmt.Errorf("renew the lease of run %s: %w", lease.Execution, err))
				return
			}
		}
	}()
	return func() {
		end()
		<-ended
	}
}
