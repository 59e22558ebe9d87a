package gateway

import "time"

// TryOnce begins and ends a try, as a call does.
func (t *Target) TryOnce() {
	one := t.upstreams().begin(&exchange{}, 0)
	one.end(good)
}

// SetClock gives t a clock. It must be set before t is called.
func (t *Target) SetClock(now func() time.Time) { t.now = now }
