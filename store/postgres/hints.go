package postgres

import (
	"context"

	"github.com/agentbus/agentbus"
)

// Hint tells the other processes what owner found out. It is not durable: after
// a crash of the server it is found out again.
func (s *Store) Hint(ctx context.Context, owner string, h agentbus.Hint) error {
	_, err := s.readers.Exec(ctx, "INSERT INTO hints (owner, kind, name, at) VALUES ($1, $2, $3, "+nowMicros+")", storable(owner), string(h.Kind), storable(h.Name))
	return unavailable(ctx, "give a hint", err)
}

// Hints returns what processes other than owner found out after a number, at
// most a minute ago, and the last number there is. A hint that is committed late
// may be missed.
func (s *Store) Hints(ctx context.Context, owner string, after int64) (hints []agentbus.Hint, last int64, err error) {
	last = after
	err = s.each(ctx, "read hints", func(r *row) bool {
		last = r.int64()
		who, h := r.text(), agentbus.Hint{Kind: agentbus.HintKind(r.text()), Name: r.text()}
		if who != owner {
			hints = append(hints, h)
		}
		return true
	}, "SELECT number, owner, kind, name FROM hints WHERE number > $1 ORDER BY number", after)
	return hints, last, err
}
