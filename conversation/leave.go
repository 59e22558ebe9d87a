package conversation

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentbus/agentbus"
)

// ErrLeave is the cause to cancel the context of a run with so that its driver
// leaves it to whoever claims it next (R19): the driver writes no halt, a turn
// that it was in stays pending, and the lease is given back. Run and Stream end
// with ErrLeave then.
var ErrLeave = errors.New("the driver leaves the run to whoever claims it")

// Definition identifies c, as far as it can be compared: a run that was begun
// with another one is not resumed (R15).
func (c *Conversation) Definition() agentbus.Digest { return c.digest() }

// Submit begins a run and leaves it to whoever claims it, as [agentbus.Claim]
// says; o needs Journal and Runs. It fails as [Run] does, before any turn.
func Submit(ctx context.Context, c Conversation, o Options) (agentbus.RunID, error) {
	if o.Runs == nil {
		return "", &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "runs: nobody could claim a run that is not stored"}
	}
	d, err := newDriver(ctx, c, o)
	if err != nil {
		return "", err
	}
	stored, err := d.options.Runs.Open(ctx, d.execution, agentbus.Claim{})
	if err != nil {
		return "", fmt.Errorf("submit run %s: %w", d.execution.ID, err)
	}
	if err = differences(&stored, &d.execution); err == nil {
		return stored.Run, nil
	}
	if d.execution = stored; stored.State != agentbus.RunDone { // it was claimed for nobody, and is not to be driven so
		err = errors.Join(err, d.giveBack(ctx))
	}
	return "", fmt.Errorf("submit run %s: %w", stored.ID, err)
}

// handBack gives the lease of a running run back, unless it is lost already.
func (d *driver) handBack(ctx context.Context) error {
	_, err := d.options.Runs.Open(context.WithoutCancel(ctx), d.execution, agentbus.Claim{TakeOver: d.execution.Lease.Epoch})
	if agentbus.CodeOf(err) == agentbus.CodeRunConflict {
		return nil
	}
	return err
}
