package gateway

import (
	"context"
	"log/slog"
	"sync"

	"github.com/agentbus/agentbus"
)

// maxLate is how many attempts that could not be voided are remembered; one beyond
// frees its key with the next attempt, or when this process is gone.
const maxLate = 10_000

// late are the attempts that failed while the store could not be written. Until they
// are voided, they hold what they held of budgets, and look as if they went on.
type late struct {
	mu    sync.Mutex
	voids []agentbus.Voiding
}

// keep remembers an attempt, without what is only recorded of it.
func (l *late) keep(v agentbus.Voiding) {
	v.Sent, v.Answer = nil, nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.voids) < maxLate {
		l.voids = append(l.voids, v)
	}
}

func (l *late) first() (v agentbus.Voiding, some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.voids) == 0 {
		return v, false
	}
	return l.voids[0], true
}

func (l *late) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.voids = l.voids[1:]; len(l.voids) == 0 {
		l.voids = nil
	}
}

// postpone puts the first behind the others: it alone may be what cannot be written.
func (l *late) postpone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.voids = append(l.voids[1:], l.voids[0])
}

// VoidLate voids the attempts that could not be voided when they failed, as soon as
// the store takes it (G20, G27). Whoever keeps a Gateway calls it from time to time,
// and not twice at once.
func (g *Gateway) VoidLate(ctx context.Context) {
	for {
		v, some := g.late.first()
		if !some {
			return
		}
		err := g.cfg.Ledger.Void(ctx, v)
		if agentbus.CodeOf(err) == agentbus.CodeStoreUnavailable || ctx.Err() != nil {
			g.late.postpone()
			return
		}
		if g.late.drop(); err != nil { // another attempt of the turn has begun, or an operator voided it
			g.log.LogAttrs(ctx, slog.LevelInfo, "attempt has ended otherwise", slog.Int64("call", v.ID), slog.Any("error", err))
		}
	}
}
