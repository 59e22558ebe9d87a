package postgres

import (
	"context"
	"math"
	"time"
)

// takeRate fills the bucket of caller $1 at $2 a second up to $3, and takes up to
// $4 whole tokens out of it.
const takeRate = `INSERT INTO rates AS r (caller, tokens, granted, at)
	VALUES ($1, $3::float8 - least($4::float8, floor($3::float8)), least($4::float8, floor($3::float8)), ` + nowMicros + `)
	ON CONFLICT (caller) DO UPDATE SET
		tokens = least($3::float8, ` + filledRate + `) - least($4::float8, floor(least($3::float8, ` + filledRate + `))),
		granted = least($4::float8, floor(least($3::float8, ` + filledRate + `))),
		at = greatest(r.at, excluded.at)
	RETURNING granted, tokens`

const filledRate = "r.tokens + greatest(excluded.at - r.at, 0) * $2::float8 / 1000000"

// TakeRate takes up to most tokens from the bucket of a caller, which all
// processes share and which fills at perSecond up to burst, and is full at first.
// got 0: wait says when there will be one. It is not durable: after a crash of
// the server every bucket is full (G8).
func (s *Store) TakeRate(ctx context.Context, caller string, perSecond, burst float64, most int) (got int, wait time.Duration, err error) {
	var granted int64
	var tokens float64
	err = s.readers.QueryRow(ctx, takeRate, storable(caller), perSecond, burst, float64(most)).Scan(&granted, &tokens)
	if err != nil || granted > 0 {
		return int(granted), 0, unavailable(ctx, "take from a rate", err)
	}
	seconds := min((1-tokens)/perSecond, time.Hour.Seconds())
	return 0, time.Duration(math.Ceil(seconds * float64(time.Second))), nil
}
