package gateway

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// A listing remembers which refusals have a record of their own. Each has one, until
// a payer is refused more often than anybody reads one by one: else who storms fills
// the disk with what it was not allowed to do (decision 128).
type listing struct {
	mu   sync.Mutex
	keys map[agentbus.Digest]struct{} // of records that are there: one more of their refusals takes no room
	pace rates                        // of new ones, by payer
}

const (
	maxListed   = 10_000 // keys that are remembered; one that is forgotten takes from the pace once more
	listedBurst = 10     // seconds of the pace that may come at once
)

// keep records what executed nothing. Of refusals beyond the pace of their payer the
// number is kept, by agent, code and minute; the log has a line of each.
func (g *Gateway) keep(ctx context.Context, x *exchange) error {
	key, c := g.recordKey(x), x.record
	if c.State == agentbus.CallRefused && !x.driven() && !g.listing.lists(key, c.Payer, g.cfg.ListedRefusals, c.Ended) {
		key, c = x.tally()
		if g.listing.add(key) {
			g.log.LogAttrs(ctx, slog.LevelWarn, "refusals are counted", slog.String("payer", string(c.Payer)), slog.String("agent", c.Agent),
				slog.String("code", string(c.Code)), slog.String("next", "find out why this payer goes on, or raise limits.listed_refusals"))
		}
	}
	return g.cfg.Recorder.Record(ctx, key, c) //nolint:wrapcheck // it is logged as it is
}

// tally returns the record that a refusal is counted in with others of its minute,
// and the key of it. It is of no run: those that it counts were of many. Its agent is
// one that there is, or the domain of one elsewhere: a caller may name any number of
// others.
func (x *exchange) tally() (agentbus.Digest, agentbus.CallRecord) {
	c, agent := &x.record, ""
	if x.target != nil {
		agent, _, _ = strings.Cut(x.target.Name, "/")
	}
	t := agentbus.CallRecord{
		TurnKey: agentbus.TurnKey{Payer: c.Payer, Agent: agent},
		State:   c.State, Status: c.Status, Code: c.Code, Message: "one of many of this minute, which are counted", Began: c.Began, Ended: c.Ended,
	}
	return t.Hash("tally", string(c.Code), strconv.FormatInt(c.Ended.Unix()/60, 10)), t
}

// lists reports whether a refusal has a record of its own.
func (l *listing) lists(key agentbus.Digest, payer agentbus.Payer, perSecond int, now time.Time) bool {
	l.mu.Lock()
	_, known := l.keys[key]
	l.mu.Unlock()
	if known {
		return true
	}
	_, ok := l.pace.take(string(payer), &agentbus.Grants{PerSecond: float64(perSecond), Burst: perSecond * listedBurst}, now)
	if ok {
		l.add(key)
	}
	return ok
}

// add remembers a key, and reports whether it is new.
func (l *listing) add(key agentbus.Digest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.keys[key]; known {
		return false
	}
	if l.keys == nil || len(l.keys) >= maxListed {
		l.keys = make(map[agentbus.Digest]struct{})
	}
	l.keys[key] = struct{}{}
	return true
}
