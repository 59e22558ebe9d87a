package conversation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// errJoined cancels the branches that a join was met without.
var errJoined = fmt.Errorf("the join was met by other branches: %w", agentbus.ErrForGood)

// errAborted cancels the branches of a fan-out that was aborted: whoever resumes
// it asks anew those that had not ended (C17).
var errAborted = fmt.Errorf("the fan-out was aborted: %w", agentbus.ErrForGood)

// aborted returns what branches are cancelled with when their run ends by cause.
// What somebody else goes on with is left to go on.
func aborted(cause error) error {
	switch {
	case errors.Is(cause, ErrLeave), errors.Is(cause, agentbus.ErrForGood):
		return cause
	case agentbus.CodeOf(cause) == agentbus.CodeLeaseLost, agentbus.CodeOf(cause) == agentbus.CodeDraining:
		return cause
	}
	return fmt.Errorf("%w: %w", errAborted, cause)
}

// together has the branches of a fan spoken side by side, and each finished as
// it ends. It returns the turn after their join, begun with the end of the last
// one, or why there is none. The goroutines of the branches have ended when it
// returns; the driver's own alone writes and tells.
func (d *driver) together(ctx context.Context, now *intent) (*intent, *agentbus.Halt, error) {
	f := now.fan
	d.unwritten = append(d.unwritten, d.credited()...) // not before: one that is ended first has not gone on
	if err := d.beginAll(ctx, f); err != nil {
		d.account.release(now.held)
		return nil, nil, err
	}
	now.held = 0 // each branch gives back its own
	rest := f.due()
	for _, b := range rest {
		if !f.met() {
			d.emit(Event{Type: EventTurnStarted, Turn: &b.turn, Branch: true})
		}
	}
	if f.open = len(rest); d.gone || f.met() {
		for _, b := range rest {
			d.ended(ctx, f, b)
		}
	} else {
		d.listen(ctx, f, rest)
	}
	switch {
	case f.err != nil:
		return nil, nil, f.err
	case f.stopped != nil:
		d.left = now.pending()
		return nil, stop(f.stopped), nil //nolint:nilerr // it is why the run halts
	case len(f.due()) > 0:
		return now, nil, nil // the loop sees why; those turns stay pending
	}
	if waiting := f.waiting(); len(waiting) > 0 {
		if !f.met() {
			return d.park(ctx, f, waiting)
		}
		if err := d.withdraw(ctx, f, waiting); err != nil {
			return nil, nil, err
		}
	}
	return d.joined(ctx, f)
}

// beginAll records the intents of all branches that do not stand, or of none: a
// crash in between would leave some that had failed as if they need not be asked.
// One that the journal has done meanwhile is taken as it is.
func (d *driver) beginAll(ctx context.Context, f *fan) error {
	rest := f.due()
	if len(rest) == 0 {
		return nil
	}
	turns := make([]agentbus.Turn, len(rest))
	var opens []agentbus.Event
	for i, b := range rest {
		opens = append(opens, d.opens(b.intent)...)
		b.tale = d.tale(b.intent, true)
		turns[i] = b.turn
	}
	stored, err := d.beginTurns(ctx, opens, turns...)
	if err != nil {
		return err
	}
	for i, b := range rest {
		if b.turn.Began = stored[i].Began; stored[i].State == agentbus.TurnDone {
			b.turn, b.stands = stored[i], true
			d.account.turn(b.held).settle(b.turn.Cost)
			d.spent = sum(d.spent, b.turn.Cost)
		}
	}
	return nil
}

// A word is the next thing that a branch said, or that it has ended.
type word struct {
	branch *branch
	chunk  agentbus.Chunk
	err    error
	ended  bool
}

// listen hears branches speak until all have ended. Once their join is met, the
// others are cancelled, and waited for.
func (d *driver) listen(ctx context.Context, f *fan, rest []*branch) {
	speaking, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { leave(aborted(context.Cause(ctx))) })() // calls leave, at the latest below, and no more
	words := make(chan word)
	var speakers sync.WaitGroup
	for _, b := range rest {
		b.account = d.account.turn(b.held)
		alone, hush := context.WithCancel(speaking)
		b.hush = hush
		answer := d.call(alone, b.intent, b.account)
		speakers.Go(func() {
			defer hush()
			for chunk, err := range answer {
				words <- word{branch: b, chunk: chunk, err: err}
			}
			words <- word{branch: b, ended: true}
		})
	}
	go func() {
		speakers.Wait()
		close(words)
	}()
	defer func() { // also when the reader of the events panics
		leave(nil)
		for range words { // what is still said is not heard
		}
	}()
	for w := range words {
		if w.ended {
			d.ended(ctx, f, w.branch)
		} else if !d.gone {
			if d.hear(ctx, &w.branch.voice, w.chunk, w.err); w.branch.failure != nil {
				w.branch.hush() // it may not have noticed
			}
		}
		switch {
		case d.gone:
			leave(aborted(errGone))
		case f.err != nil:
			leave(f.err)
		case f.stopped != nil:
			leave(aborted(f.stopped))
		case f.met():
			leave(errJoined)
		}
	}
}

// ended finishes the turn of a branch that speaks no more, unless it was left:
// then it stays pending. What ends after the join was met is cancelled, even
// with an answer, so that as many are done as the join needs and no more. The
// last of a fan is finished with the turn after it; see joined.
func (d *driver) ended(ctx context.Context, f *fan, b *branch) {
	if d.options.leaves != nil && d.options.leaves(b.turn.ID) {
		return
	}
	f.open--
	failure, t := d.heardOut(ctx, &b.voice), &b.turn
	if b.account != nil {
		b.account.settle(t.Cost - b.before)
	} else {
		d.account.release(b.held)
	}
	if ctx.Err() != nil || d.gone || f.err != nil || f.stopped != nil {
		return
	}
	d.spent = sum(d.spent, t.Cost-b.before)
	t.Ended = time.Now().UTC()
	switch {
	case f.met():
		t.State, t.Reply, t.Withdraw = agentbus.TurnCancelled, agentbus.Reply{}, d.unneeded(b)
	case asks(failure):
		b.asked = failure
		return
	case d.options.leaves == nil && agentbus.CodeOf(failure) == agentbus.CodeRunStopped: // it stays pending, as the others do; in older records it failed
		f.stopped = agentbus.AsError(failure)
		return
	case failure != nil:
		t.State, t.Error, t.Reply = agentbus.TurnFailed, d.recordable(failure), agentbus.Reply{}
	default:
		t.State = agentbus.TurnDone
	}
	b.stands = true
	if f.open == 0 {
		f.last = b
		return
	}
	f.err = d.finish(ctx, b, nil)
}

// finish stores what became of a branch, and the turn after it. Its event waits
// for those of the branches before it, so that their order is that of the plan,
// whoever is faster.
func (d *driver) finish(ctx context.Context, b *branch, next *agentbus.Turn, more ...agentbus.Event) error {
	t := &b.turn
	kind := EventTurnDone
	switch t.State {
	case agentbus.TurnFailed:
		kind = EventTurnFailed
	case agentbus.TurnCancelled:
		kind = EventTurnCancelled
	case agentbus.TurnDone, agentbus.TurnPending, agentbus.TurnWaiting:
	}
	b.hold = b.at + 1
	if err := d.finishTurn(ctx, t, next, append(d.told(b.intent), more...)...); err != nil {
		return err
	}
	d.emit(Event{Type: kind, Turn: t, Branch: true})
	return nil
}

// joined ends a fan whose branches have all ended.
func (d *driver) joined(ctx context.Context, f *fan) (*intent, *agentbus.Halt, error) {
	d.children = f.children()
	if !f.enough() {
		if err := d.finish(ctx, f.last, nil); err != nil {
			return nil, nil, err
		}
		t := &f.failed().turn
		return nil, &agentbus.Halt{Kind: agentbus.HaltParticipantError, Participant: string(t.Speaker), Error: t.Error}, nil
	}
	d.heard(f.turns())
	event := d.event(EventJoined, "", f.outcome(d.execution.Run))
	if f.last == nil { // the journal had done all that was left
		d.unwritten = append(d.unwritten, event)
		d.emit(Event{Type: EventJoined, Turns: f.turns()})
		return d.first(ctx)
	}
	events := []agentbus.Event{event}
	next, halt, err := d.decide()
	var begun *agentbus.Turn
	if next != nil && next.fan == nil {
		begun, events = &next.turn, append(events, d.opens(next)...)
	}
	if failed := d.finish(ctx, f.last, begun, events...); failed != nil {
		if next != nil {
			d.account.release(next.held)
		}
		return nil, nil, failed
	}
	d.emit(Event{Type: EventJoined, Turns: f.turns()})
	return next, halt, err
}
