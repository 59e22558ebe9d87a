package gateway_test

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// A countingLedger counts what is asked of it durably.
type countingLedger struct {
	gateway.Ledger
	reserved atomic.Int64
}

func (l *countingLedger) Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error) {
	l.reserved.Add(1)
	return l.Ledger.Reserve(ctx, r)
}

// TestSpentBudgetCostsNoWrites: G27, a payer whose budget is spent is refused
// from memory, and answered from memory where it was answered before.
func TestSpentBudgetCostsNoWrites(t *testing.T) {
	t.Parallel()
	a, ledger := priceOf(newAgent(t, "critic", nil), 400_000), &countingLedger{}
	b := newBus(t, func(c *gateway.Config) {
		under(total(500_000, true))(c)
		ledger.Ledger, c.Ledger = c.Ledger, ledger
	}, a)
	first := b.call("critic", turn("r", "t1")...)
	refused(t, "the second", b.call("critic", turn("r", "t2")...), http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
	before := ledger.reserved.Load()
	for i := range 20 {
		refused(t, "another", b.call("critic", turn("r", "more"+strconv.Itoa(i))...), http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
	}
	if n := ledger.reserved.Load() - before; n != 0 {
		t.Errorf("%d refusals asked for a reservation", n)
	}
	same(t, "replay", first, b.call("critic", turn("r", "t1")...))
	if n := a.executions(); n != 1 {
		t.Errorf("%d executions", n)
	}
}
