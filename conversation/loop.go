package conversation

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
	"github.com/agentbus/agentbus/internal/typed"
)

// loop takes turns until it returns why the run halts. Without a halt it
// returns why the driver cannot go on, or may not: the journal stays as it is.
func (d *driver) loop(ctx context.Context, cancel context.CancelCauseFunc) (*agentbus.Halt, error) {
	if halt, err := stopped(ctx); halt != nil || err != nil {
		return halt, err
	}
	next, halt, err := d.first(ctx)
	return d.turn(ctx, cancel, next, halt, err)
}

// turn takes turns from the next one on; see loop.
func (d *driver) turn(ctx context.Context, cancel context.CancelCauseFunc, next *intent, halt *agentbus.Halt, err error) (*agentbus.Halt, error) {
	for halt == nil && err == nil {
		if d.gone {
			cancel(errGone)
		}
		if halt, err = stopped(ctx); halt != nil || err != nil {
			d.account.release(next.held)
			d.left = next.pending()
			break
		}
		next, halt, err = d.perform(ctx, next)
	}
	if errors.Is(err, errPlan) {
		return &agentbus.Halt{Kind: agentbus.HaltAbort, Reason: planFailed}, err
	}
	if err != nil && ctx.Err() != nil && agentbus.CodeOf(err) != agentbus.CodeLeaseLost {
		if halt, left := stopped(ctx); halt != nil || errors.Is(left, ErrLeave) { // the journal was left by our own leaving
			return halt, left
		}
	}
	return halt, err
}

// stopped tells what the end of ctx means: a halt, or that the run is not this
// driver's any more.
func stopped(ctx context.Context) (*agentbus.Halt, error) {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return nil, nil
	case errors.Is(cause, errDeadline):
		return &agentbus.Halt{Kind: agentbus.HaltDeadline}, nil
	case agentbus.CodeOf(cause) == agentbus.CodeLeaseLost, errors.Is(cause, ErrLeave):
		return nil, cause
	case agentbus.CodeOf(cause) == agentbus.CodeRunStopped:
		return stop(agentbus.AsError(cause)), nil
	}
	return &agentbus.Halt{Kind: agentbus.HaltAbort}, nil
}

// ruleCancel marks the error of a run whose canceller said why: it is what was
// observed (E4).
const ruleCancel = "E4"

// whyStopped returns the error of a run that was stopped, with what whoever did it
// said.
func (d *driver) whyStopped(ctx context.Context, why *agentbus.Error) *agentbus.Error {
	if d.options.StopReason == nil {
		return why
	}
	reason, err := d.options.StopReason(context.WithoutCancel(ctx), d.execution.Run)
	if err != nil || reason == "" {
		return why // it is cancelled all the same
	}
	return &agentbus.Error{
		Code: agentbus.CodeRunStopped, Message: "this run was cancelled by its caller",
		Explain: &agentbus.Explain{Rule: ruleCancel, Observed: d.options.text(reason)},
	}
}

// stop returns the halt of a run that somebody stopped for good, which its error
// tells why.
func stop(why *agentbus.Error) *agentbus.Halt {
	if e := why.Explain; e != nil && e.Rule == ruleCancel {
		if reason, ok := e.Observed.(string); ok {
			return &agentbus.Halt{Kind: agentbus.HaltAbort, Reason: reason, Error: why}
		}
	}
	return &agentbus.Halt{Kind: agentbus.HaltAbort, Reason: strings.TrimPrefix(why.Message, "this run was "), Error: why}
}

// first begins the first turn of this driver. A turn that the journal has done
// meanwhile is adopted, and the next one decided.
func (d *driver) first(ctx context.Context) (*intent, *agentbus.Halt, error) {
	for {
		next, halt, err := d.decide()
		d.refused = nil // it was told with its turn
		if halt != nil || err != nil {
			return nil, halt, err
		}
		if next.fan != nil {
			return next, nil, nil // it begins its branches itself
		}
		d.unwritten = append(d.unwritten, d.credited()...)
		if next.decided.waits {
			d.account.release(next.held)
			h, stored := &agentbus.Halt{Kind: agentbus.HaltWaiting, Wait: &agentbus.Wait{}}, d.carried[next.turn.Index]
			d.waitsFor(h, &stored)
			return nil, h, nil
		}
		stored, err := d.beginTurns(ctx, d.opens(next), next.turn)
		if err != nil {
			d.account.release(next.held)
			return nil, nil, err
		}
		if stored[0].State != agentbus.TurnDone {
			next.turn.Began = stored[0].Began
			return next, nil, nil
		}
		d.account.release(next.held)
		d.account.turn(0).settle(stored[0].Cost)
		d.spent = sum(d.spent, stored[0].Cost)
		d.heard(stored)
	}
}

// pending returns the turns that were begun and have no result.
func (now *intent) pending() []*intent {
	if now.fan == nil {
		return []*intent{now}
	}
	var all []*intent
	for _, b := range now.fan.rest() { // also what a branch asks is not told any more
		if b.begun > 0 {
			b.hold = 0
			all = append(all, b.intent)
		}
	}
	return all
}

// beginTurns records intents together, with the events that are to be written: a
// driver that wrote anything has told that it drives, so that a replay finds it
// (R23). It is not given up halfway when ctx ends: it would not be known whether
// those events are written.
func (d *driver) beginTurns(ctx context.Context, opens []agentbus.Event, turns ...agentbus.Turn) ([]agentbus.Turn, error) {
	faults.At(faults.BeginBefore)
	stored, err := d.options.Journal.Begin(context.WithoutCancel(ctx), turns, append(slices.Clip(d.unwritten), opens...)...)
	if err != nil {
		return nil, d.unforced(fmt.Errorf("begin turn %s: %w", turns[0].ID, err), &turns[0])
	}
	faults.At(faults.BeginAfter)
	d.unwritten = nil
	for i := range turns {
		if _, carried := d.carried[turns[i].Index]; carried {
			d.own[turns[i].ID] = true
		}
	}
	return stored, nil
}

// finishTurn stores what became of a turn, the intent of the one after it, unless
// it is nil, and events behind those that are to be written.
func (d *driver) finishTurn(ctx context.Context, t, next *agentbus.Turn, events ...agentbus.Event) error {
	faults.At(faults.FinishBefore)
	events = append(events, d.refused...)
	d.refused = nil
	if err := d.options.Journal.Finish(context.WithoutCancel(ctx), *t, next, d.events(events...)...); err != nil {
		return d.unforced(fmt.Errorf("finish turn %s: %w", t.ID, err), next)
	}
	faults.At(faults.FinishAfter)
	return nil
}

// unforced says what to do where another definition was forced, and the journal
// has a turn that was begun under the old one: it stays what it was asked (R15).
func (d *driver) unforced(err error, t *agentbus.Turn) error {
	if !d.options.Force || d.enclosing != nil || t == nil || agentbus.CodeOf(err) != agentbus.CodeTurnMismatch {
		return err
	}
	at := strconv.Itoa(t.Index - d.execution.First)
	return &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: "turn " + at + " was begun already, and is another one in the definition that is forced",
		Explain: &agentbus.Explain{Rule: "R15", Next: "agentbus replay " + typed.Operand(string(d.execution.Run), "--from "+at) + " begins a new run at that turn, with the turns before it"},
		Err:     err,
	}
}

var errPlan = errors.New("plan")

const planFailed = "the plan failed" // why such a run is aborted

// decide returns the next turn, with its budget reserved, or why there is none.
func (d *driver) decide() (*intent, *agentbus.Halt, error) {
	h, err := d.over()
	if err != nil {
		return nil, nil, fmt.Errorf("%w of conversation %s: %w", errPlan, d.conversation.Name, err)
	}
	if h != nil {
		return nil, h, nil
	}
	step, err := d.next()
	if err != nil {
		return nil, nil, fmt.Errorf("%w of conversation %s: %w", errPlan, d.conversation.Name, err)
	}
	if step.Done {
		return nil, &agentbus.Halt{Kind: agentbus.HaltDone, Reason: step.Reason}, nil
	}
	if len(step.Together) == 0 {
		d.relay(&step)
	}
	if h := d.bounded(&step); h != nil {
		return nil, h, nil
	}
	if len(step.Together) > 0 {
		return d.fanOut(&step)
	}
	who := d.index(step.Speaker)
	if who < 0 {
		return nil, nil, fmt.Errorf("%w of conversation %s: %q is no participant", errPlan, d.conversation.Name, step.Speaker)
	}
	p := &d.conversation.Participants[who]
	if full := d.account.hold(p.MaxCost); full != nil {
		return nil, overBudget(full, p.MaxCost, p.Name), nil
	}
	d.say(step.Say, step.Speaker)
	next, err := d.intendIn(&step, who)
	if err != nil {
		d.account.release(p.MaxCost)
		return nil, nil, err
	}
	return next, nil, nil
}

// next asks the plan. Its panic is its error: the run halts, and its lease is free.
func (d *driver) next() (step Step, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked("the plan panicked", p)
		}
	}()
	return d.plan.Next(d.turns)
}

// halts asks HaltWhen. Its panic is its error, as the plan's is.
func (d *driver) halts(turns []agentbus.Turn) (reason string, halt bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked("HaltWhen panicked", p)
		}
	}()
	reason, halt = d.conversation.HaltWhen(turns)
	return reason, halt, nil
}

// panicked is the error of what panicked with p. What p says stays out of its message: it may
// hold what was said.
func panicked(what string, p any) error {
	return &agentbus.Error{
		Code: agentbus.CodeInternal, Message: what, Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack()),
		Explain: &agentbus.Explain{Next: "mend it, and resume the run"},
	}
}

// over returns why nobody may speak after the turns so far, or nil. It fails when
// HaltWhen does.
func (d *driver) over() (*agentbus.Halt, error) {
	n, c := len(d.turns), &d.conversation
	for i := d.latest; i < n && c.HaltContains != ""; i++ {
		if t := &d.turns[i]; strings.Contains(t.Reply.Text, c.HaltContains) {
			return &agentbus.Halt{Kind: agentbus.HaltPredicate, Reason: string(t.Speaker) + " said " + strconv.Quote(c.HaltContains)}, nil
		}
	}
	if n > 0 && c.HaltWhen != nil {
		if reason, halt, err := d.halts(d.turns[:n:n]); err != nil {
			return nil, err
		} else if halt {
			return &agentbus.Halt{Kind: agentbus.HaltPredicate, Reason: reason}, nil
		}
	}
	// A FanOut ends by itself, within the limit: Validate has seen to that.
	if _, ends := d.plan.(FanOut); n >= c.MaxTurns && !ends {
		return &agentbus.Halt{Kind: agentbus.HaltMaxTurns}, nil
	}
	return nil, nil
}

// overBudget returns the halt for calls that an account refused, of which all
// together can cost worst (R8).
func overBudget(full *account, worst agentbus.Micros, of ...agentbus.Speaker) *agentbus.Halt {
	full.mu.Lock()
	defer full.mu.Unlock()
	h := &agentbus.Halt{Kind: agentbus.HaltBudget, Spent: full.spent, Limit: *full.limit}
	calls := "one call to each of " + strconv.Itoa(len(of)) + " participants"
	if len(of) == 1 {
		h.Participant = string(of[0])
		calls = "a call of " + h.Participant
	}
	if worst > 0 {
		h.Reason = calls + " can cost $" + worst.USD()
	}
	return h
}

// intend makes a turn, spoken by a participant, behind as many turns, as a call
// made from a lineage. Its id ends with mark.
func (d *driver) intend(from agentbus.Lineage, who, behind int, mark string) (*intent, error) {
	p := &d.conversation.Participants[who]
	index := d.execution.First + behind
	id := d.execution.Run.Turn(index, agentbus.Speaker(p.slug()+mark))
	l, err := from.Next(id, p.wire())
	if err != nil {
		return nil, err
	}
	owned, err := p.owns(d.turns)
	if err != nil { // it is as pure as a plan, and fails as one
		return nil, fmt.Errorf("%w of conversation %s: %w", errPlan, d.conversation.Name, err)
	}
	if owned {
		l.Auth = agentbus.Credential{} // it pays for itself (P22)
	}
	t := agentbus.Turn{
		TurnKey:   agentbus.TurnKey{Payer: d.options.Payer, Agent: p.agent(), Run: l.Run, Path: l.Path, Parent: l.Parent, ID: id},
		Execution: d.execution.ID, Index: index, Speaker: p.Name, Digest: d.sent[who].digest(),
		Epoch: d.execution.Lease.Epoch, State: agentbus.TurnPending, Attempts: 1, Began: time.Now().UTC(),
	}
	if c, ok := d.carried[index]; ok {
		t.Attempts, t.Cost = c.Attempts+1, c.Cost
	}
	return &intent{turn: t, who: who, lineage: l, owned: owned, held: p.MaxCost, decided: d.decided[index]}, nil
}

// perform has a turn spoken and finished. It returns the next one, begun in the
// same transaction, or why there is none.
func (d *driver) perform(ctx context.Context, now *intent) (*intent, *agentbus.Halt, error) {
	if now.fan != nil {
		return d.together(ctx, now)
	}
	t := &now.turn
	before := t.Cost
	account := d.account.turn(now.held)
	failure := d.speak(ctx, now, account)
	account.settle(t.Cost - before)
	now.held = 0
	if ctx.Err() != nil || d.gone {
		return now, nil, nil //nolint:nilerr // the loop sees why; the turn stays pending
	}
	d.spent = sum(d.spent, t.Cost-before)
	t.Ended = time.Now().UTC()
	if asks(failure) {
		return nil, d.wait(now, failure), nil
	}
	if agentbus.CodeOf(failure) == agentbus.CodeRunStopped { // in its middle
		d.left = now.pending()
		return nil, stop(agentbus.AsError(failure)), nil
	}
	if failure != nil {
		return d.fail(ctx, now, failure)
	}
	t.State = agentbus.TurnDone
	d.heard([]agentbus.Turn{*t})
	next, halt, err := d.decide()
	if next != nil && next.relayed {
		now.heir = next
	}
	events := d.told(now)
	var begun *agentbus.Turn
	if next != nil && next.fan == nil {
		begun, events = &next.turn, append(events, d.opens(next)...)
	}
	if failed := d.finishTurn(ctx, t, begun, events...); failed != nil {
		if next != nil {
			d.account.release(next.held)
		}
		return nil, nil, failed
	}
	d.emit(Event{Type: EventTurnDone, Turn: t})
	return next, halt, err
}

// fail finishes a turn that was not answered.
func (d *driver) fail(ctx context.Context, now *intent, failure error) (*intent, *agentbus.Halt, error) {
	t := &now.turn
	t.State, t.Error, t.Reply = agentbus.TurnFailed, d.recordable(failure), agentbus.Reply{}
	if err := d.finishTurn(ctx, t, nil, d.told(now)...); err != nil {
		return nil, nil, err
	}
	d.emit(Event{Type: EventTurnFailed, Turn: t})
	return nil, &agentbus.Halt{Kind: agentbus.HaltParticipantError, Participant: string(t.Speaker), Error: t.Error}, nil
}
