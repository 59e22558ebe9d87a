package openwop

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
)

// A run is cancelled within 5 s (E4). Its driver has driverPatience to end it: longer
// than one that lives takes to learn that it is to. Then it is ended here, and the request
// waits for overtakePatience more.
const (
	driverPatience   = renewMost + time.Second
	overtakePatience = time.Second
)

// reasonStopped is why a run was cancelled that somebody stopped without saying why.
const reasonStopped = "stopped"

// cancel ends a run: here, where it waits, or in the process that drives it. It
// returns how the run stands.
func (h *Host) cancel(ctx context.Context, e *agentbus.Execution, reason, by string) (Status, error) {
	f, err := h.fold(ctx, e)
	if err != nil {
		return "", err
	}
	if f.snap.Status.Terminal() {
		return ended(f)
	}
	if _, ours := readSpec(e); !ours {
		if h.cfg.Conversations == nil {
			return "", refuse(http.StatusConflict, "run_not_cancellable", "the host does not drive this run")
		}
		if err := h.cfg.Conversations.Cancel(ctx, e.Run, by, reason); err != nil {
			return "", err
		}
	} else if err := h.cancelOwn(ctx, e, reason, by); err != nil {
		return "", err
	}
	ctx = context.WithoutCancel(ctx) // it is cancelled, whether or not somebody reads that
	end, late := h.endsWithin(ctx, e.ID, driverPatience)
	if late {
		if err := h.overtake(ctx, e.ID, reason, by); err != nil {
			h.log.LogAttrs(ctx, slog.LevelWarn, "cancelled run not ended", slog.String("run", string(e.Run)), slog.Any("error", err))
		}
		end, _ = h.endsWithin(ctx, e.ID, overtakePatience)
	}
	if end == nil {
		return StatusCancelling, nil
	}
	return ended(end) // it may have come to another end first
}

// Stopped sees to it that a run ends that was stopped, also when who drives it says nothing.
// It returns at once; [Host.Close] waits for what it began.
func (h *Host) Stopped(id agentbus.ExecutionID) {
	h.going.Go(func() {
		_, late := h.endsWithin(h.ctx, id, driverPatience)
		if !late {
			return
		}
		run := agentbus.RunID(id)
		reason, err := h.cfg.Store.StopReason(h.ctx, run)
		if err == nil {
			err = h.overtake(h.ctx, id, cmp.Or(reason, reasonStopped), "")
		}
		if err != nil {
			h.log.LogAttrs(h.ctx, slog.LevelWarn, "stopped run not ended", slog.String("run", string(run)), slog.Any("error", err))
		}
	})
}

// endsWithin returns the end of a run; nil when it is not seen. late tells that it did
// not come in time: not that the host was closed, or that its store cannot be read.
func (h *Host) endsWithin(ctx context.Context, id agentbus.ExecutionID, d time.Duration) (end *Fold, late bool) {
	ctx, done := context.WithTimeout(ctx, d)
	defer done()
	defer context.AfterFunc(h.ctx, done)() //nolint:contextcheck // the host may be closed first
	end, err := h.await(ctx, id)
	if err != nil {
		return nil, errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
	return end, false
}

// overtake ends a run that was cancelled in the place of its driver, which has had its
// time: it may have died unseen, or be suspended. It is fenced, so that what it still
// writes is refused (R17).
func (h *Host) overtake(ctx context.Context, id agentbus.ExecutionID, reason, by string) error {
	e, found, err := h.cfg.Store.Execution(ctx, id)
	if owner := e.Lease.Owner; err != nil || !found || e.State != agentbus.RunRunning || owner == "" || owner == h.cfg.Owner || id != agentbus.ExecutionID(e.Run) {
		return err
	}
	if _, ours := readSpec(&e); !ours {
		err = h.cfg.Conversations.Overtake(ctx, e.Run)
	} else if _, err = h.cfg.Store.Open(ctx, e, agentbus.Claim{TakeOver: e.Lease.Epoch}); err == nil {
		err = h.cancelOwn(ctx, &e, reason, by)
	}
	if agentbus.CodeOf(err) == agentbus.CodeRunConflict {
		return nil // somebody else ends it
	}
	return err
}

// End ends the run of a workflow that was stopped when nobody drove it.
func (h *Host) End(ctx context.Context, e *agentbus.Execution) error {
	reason, err := h.cfg.Store.StopReason(ctx, e.Run)
	if err != nil {
		return err
	}
	return h.cancelOwn(ctx, e, cmp.Or(reason, reasonStopped), "")
}

// ended returns how a run stands that is over: nothing else than cancelled is what
// who cancels it asked for (E4).
func ended(f *Fold) (Status, error) {
	if s := f.snap.Status; s != StatusCancelled {
		return s, refuse(http.StatusConflict, "run_already_terminal", "the run is %s", s)
	}
	return StatusCancelled, nil
}

// cancelOwn ends the run of a workflow: here, or where it is driven. Who cancels it
// or drives it here meanwhile leaves it to this one.
func (h *Host) cancelOwn(ctx context.Context, e *agentbus.Execution, reason, by string) error {
	h.mu.Lock()
	stop, driven := h.driven[e.ID]
	if driven { // while its driver is there: behind its end it would tell nobody
		stop(&cancellation{reason, by})
	} else {
		h.driven[e.ID] = func(error) {}
	}
	h.mu.Unlock()
	if driven {
		return nil
	}
	defer h.forget(e.ID)
	return h.cancelParked(ctx, e, reason, by)
}

// cancelParked ends a run that nobody drives here, or tells the process that does.
func (h *Host) cancelParked(ctx context.Context, e *agentbus.Execution, reason, by string) error {
	got, err := h.cfg.Store.Open(ctx, *e, agentbus.Claim{Owner: h.cfg.Owner, TTL: h.cfg.Lease})
	switch {
	case agentbus.CodeOf(err) == agentbus.CodeRunConflict:
		return h.cfg.Store.StopRun(ctx, e.Run, by, reason, time.Now().UTC()) // its driver learns it as it renews its lease
	case err != nil || got.State == agentbus.RunDone:
		return err
	}
	s, _ := readSpec(&got)
	d := &driver{Host: h, ctx: ctx, reads: ctx, exec: got, spec: s, wf: h.cfg.workflow(s.Workflow), redact: h.cfg.Redact(), fold: NewFold(e.ID, s.Workflow)}
	if err := d.load(); err != nil { //nolint:contextcheck // a driver has its own
		return err
	}
	for _, open := range d.fold.open {
		_, _ = h.cfg.Store.Resolve(ctx, open.interrupt(e.ID), // one that is resolved already is no fault
			agentbus.Resolution{Decision: agentbus.DecisionWithdrawn, At: time.Now().UTC(), By: by})
	}
	return d.cancelled(&cancellation{reason, by}) //nolint:contextcheck // a driver has its own
}

// cancelChild ends the run of a worker whose parent was cancelled (E41).
func (h *Host) cancelChild(ctx context.Context, id agentbus.ExecutionID) error {
	e, found, err := h.cfg.Store.Execution(ctx, id)
	if err != nil || !found {
		return err
	}
	_, err = h.cancel(ctx, &e, "its parent was cancelled", string(e.Payer))
	return err
}
