package main

import (
	"context"
	"time"

	"github.com/agentbus/agentbus/internal/measure"
)

// bareSyncs returns how many times a second this disk takes 1 KiB at the end of
// a file for good.
func bareSyncs(ctx context.Context, dir string, d time.Duration) (float64, error) {
	took, err := measure.Syncs(ctx, dir, d)
	return took.Rate(), err
}
