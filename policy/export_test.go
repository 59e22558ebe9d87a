package policy

import "time"

// Backoff is how long r waits after its n-th attempt, for a random number from 0
// to 1.
func Backoff(r Retry, n int, random float64) time.Duration { return r.defaults().backoff(n, random) }
