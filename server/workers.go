package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/openwop"
)

// workers drive runs that nobody drives (R19): those that a dead process left
// in the middle, and those that were begun for whoever comes. Who claims the
// lease of one has it, so that the workers of several processes share the work.
type workers struct {
	*Server

	slots   chan struct{} // one taken for each run that is driven
	ended   chan struct{} // closed when the search has ended
	going   sync.WaitGroup
	leaving atomic.Bool // each run is left after the turn it is in
	cut     context.CancelCauseFunc
	stop    context.CancelFunc // ends the search
	late    *time.Timer        // cuts what is left; nil before leave

	mu    sync.Mutex // guards again
	again map[agentbus.RunID]again
}

// again says when a run that could not be driven is looked at again: once the
// configuration is another one, and when its time has come.
type again struct {
	wiring *wiring
	tries  int
	at     time.Time // zero: not under this configuration
}

const (
	pollLeast = 100 * time.Millisecond // between two looks for work, doubled while there is none
	pollMost  = 2 * time.Second
	takeMost  = 256 // runs in one look
	retryMost = 5 * time.Minute
	maxAgain  = 65_536 // runs to remember; beyond, all are looked at once more
)

// work starts workers, until wait has been called.
func (s *Server) work(ctx context.Context) *workers {
	w := &workers{Server: s, slots: make(chan struct{}, s.cfg.Workers.Max), ended: make(chan struct{}), again: map[agentbus.RunID]again{}}
	ctx, w.cut = context.WithCancelCause(context.WithoutCancel(ctx))
	search, stop := context.WithCancel(ctx)
	w.stop = stop
	go func() { // ends with stop
		defer close(w.ended)
		if cap(w.slots) > 0 {
			w.search(search, ctx)
		}
	}()
	return w
}

// leave lets every run be left after the turn it is in, and cuts those that are
// in a turn for longer than atMost. Others go on with them.
func (w *workers) leave(atMost time.Duration) {
	w.leaving.Store(true)
	w.stop()
	w.late = time.AfterFunc(atMost, func() { w.cut(conversation.ErrLeave) })
}

// wait waits until every run is left; at once, unless leave was called.
func (w *workers) wait() {
	w.stop()
	<-w.ended
	if w.late == nil {
		w.cut(conversation.ErrLeave)
	}
	w.going.Wait()
	w.cut(conversation.ErrLeave)
	if w.late != nil {
		w.late.Stop()
	}
}

// search looks for runs, and drives them under ctx, until its own context ends.
func (w *workers) search(until, ctx context.Context) {
	pause := pollLeast
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-until.Done():
			return
		case <-timer.C:
		}
		found, err := w.take(until, ctx)
		switch {
		case err != nil && until.Err() == nil:
			w.log.LogAttrs(until, slog.LevelWarn, "cannot look for runs without a driver", slog.Any("error", err))
			pause = pollMost
		case found == takeMost:
			pause = 0
		case found > 0:
			pause = pollLeast
		default:
			pause = min(max(2*pause, pollLeast), pollMost)
		}
		timer.Reset(pause)
	}
}

// take begins to drive as many orphans as there is room for.
func (w *workers) take(until, ctx context.Context) (found int, err error) {
	room := min(cap(w.slots)-len(w.slots), takeMost)
	if room == 0 {
		return 0, nil
	}
	claim := agentbus.Claim{Owner: w.owner, TTL: w.cfg.Workers.Lease}
	orphans, err := w.store.Orphans(until, claim, room, w.alive, func(id agentbus.ExecutionID) bool { return w.skips(agentbus.RunID(id)) })
	for i := range orphans {
		e := &orphans[i]
		if !w.driven.begin(e.Run) { // its driver here claims it anew
			err = errors.Join(err, w.handBack(ctx, e))
			continue
		}
		found++
		w.slots <- struct{}{} // there is room: only this goroutine takes
		w.going.Go(func() {
			defer func() { <-w.slots }()
			defer w.driven.end(e.Run)
			w.settle(ctx, e.Run, w.perform(ctx, e))
		})
	}
	return found, err
}

// skips reports whether a run is not to be taken now.
func (w *workers) skips(run agentbus.RunID) bool {
	if w.driven.has(run) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	a, known := w.again[run]
	return known && a.wiring == w.now() && (a.at.IsZero() || time.Now().Before(a.at))
}

// errAlone says that a run is nothing for this process.
var errAlone = errors.New("left alone")

// perform drives a run to its halt, or until it is to be left. One that was stopped is
// ended: its driver died before it was told, or who stopped it died behind that.
func (w *workers) perform(ctx context.Context, e *agentbus.Execution) error {
	if _, err := w.store.Renew(ctx, e.Lease, w.cfg.Workers.Lease); agentbus.CodeOf(err) == agentbus.CodeRunStopped {
		return w.endOrphan(ctx, e)
	}
	if openwop.Drives(e) {
		err := w.wop.Drive(ctx, e.ID)
		if errors.Is(err, openwop.ErrAlone) {
			err = errors.Join(fmt.Errorf("%w: %w", errAlone, err), w.handBack(ctx, e))
		}
		return err
	}
	c, o, err := w.now().orphan(ctx, e)
	if err != nil {
		return errors.Join(err, w.handBack(ctx, e))
	}
	w.log.LogAttrs(ctx, slog.LevelInfo, "run taken up", slog.String("run", string(e.Run)), slog.String("conversation", e.Conversation))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for event, err := range w.drive(ctx, c, o) {
		switch {
		case err != nil:
			return err
		case event.Result != nil:
			w.log.LogAttrs(ctx, slog.LevelInfo, "run halted", slog.String("run", string(e.Run)), slog.String("halt", string(event.Result.Halt.Kind)), slog.Int("turns", len(event.Result.Turns)))
		case w.leaving.Load() && (event.Type == conversation.EventStarted || event.Type == conversation.EventResumed || event.Type == conversation.EventTurnDone):
			cancel(conversation.ErrLeave)
		}
	}
	return nil
}

// endOrphan ends a run that was stopped when nobody drove it.
func (w *workers) endOrphan(ctx context.Context, e *agentbus.Execution) (err error) {
	if openwop.Drives(e) {
		err = w.wop.End(ctx, e)
	} else {
		err = w.end(ctx, e)
	}
	if err != nil {
		return errors.Join(err, w.handBack(ctx, e))
	}
	w.log.LogAttrs(ctx, slog.LevelInfo, "stopped run ended", slog.String("run", string(e.Run)))
	return nil
}

// handBack gives back a run that was claimed and not begun: another process may
// be the one for it.
func (w *workers) handBack(ctx context.Context, e *agentbus.Execution) error {
	_, err := w.store.Open(ctx, *e, agentbus.Claim{TakeOver: e.Lease.Epoch})
	if agentbus.CodeOf(err) == agentbus.CodeRunConflict {
		return nil // somebody has it
	}
	return err
}

// settle notes how the driving of a run ended, so that what failed is not tried
// in a circle.
func (w *workers) settle(ctx context.Context, run agentbus.RunID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	code := agentbus.CodeOf(err)
	if err == nil || errors.Is(err, conversation.ErrLeave) || code == agentbus.CodeRunConflict || code == agentbus.CodeLeaseLost {
		delete(w.again, run) // it is over, paused, or another process has it
		return
	}
	if len(w.again) >= maxAgain {
		clear(w.again)
	}
	a := w.again[run]
	a.wiring, a.tries, a.at = w.now(), a.tries+1, time.Time{}
	if !errors.Is(err, errAlone) {
		a.at = time.Now().Add(min(time.Second<<min(a.tries, 20), retryMost))
	}
	w.again[run] = a
	w.log.LogAttrs(ctx, slog.LevelWarn, "run not taken up", slog.String("run", string(run)), slog.Any("error", err))
}

// orphan prepares a run that nobody drives. Only what this configuration would
// begin in the same way is driven: the rest is for somebody else (R15).
func (s *wiring) orphan(ctx context.Context, e *agentbus.Execution) (c conversation.Conversation, o conversation.Options, err error) {
	o = s.options(e.Run)
	o.Payer, o.Spec = e.Payer, e.Spec
	sp, ours := specOf(e)
	if !ours {
		return c, o, fmt.Errorf("%w: it was not begun by this program", errAlone)
	}
	if sp.Peers != nil {
		return c, o, fmt.Errorf("%w: its agents are not in the configuration; agentbus resume goes on with it", errAlone)
	}
	sp.tell(&o)
	if c, err = s.conversation(sp); err != nil {
		return c, o, fmt.Errorf("%w: %w", errAlone, err)
	}
	if d := c.Definition(); d != e.Definition {
		return c, o, fmt.Errorf("%w: it was begun with another definition of %q (%s, not %s)", errAlone, e.Conversation, e.Definition, d)
	}
	if err := s.credit(ctx, e, &o); err != nil {
		return c, o, err
	}
	switch {
	case sp.Deadline.IsZero():
	case time.Now().Before(sp.Deadline):
		o.Deadline = sp.Deadline
	case e.Halt != nil && e.Halt.Kind == agentbus.HaltWaiting: // it calls nobody, and needs no credential
		o.Halt = &agentbus.Halt{Kind: agentbus.HaltDeadline, Reason: "its time was up while it waited"}
	case o.Halt == nil:
		o.Halt = &agentbus.Halt{Kind: agentbus.HaltAbort, Reason: "its time was up before anybody took it up"}
	}
	return c, o, nil
}

// specOf returns how the conversation of a run is built; ours tells whether this
// program began it.
func specOf(e *agentbus.Execution) (sp spec, ours bool) {
	return sp, json.Unmarshal(e.Spec, &sp) == nil && sp.Conversation != ""
}

// credit gives o the sealed credential of a run that somebody pays for, or the
// halt of one that waits for it (R18).
func (s *wiring) credit(ctx context.Context, e *agentbus.Execution, o *conversation.Options) error {
	if o.Redact = s.redacting(nil); e.Payer == LocalPayer {
		return nil
	}
	c, why, err := s.unsealed(ctx, e)
	if err == nil && why != "" {
		o.Halt = waiting(e.Payer, why)
	}
	o.Lineage.Auth, o.Redact = c, s.redacting(nil, c)
	return err
}
