package gateway

import (
	"errors"
	"net/http"
	"slices"
	"time"
)

// send writes b to a caller and flushes it.
func (g *Gateway) send(w http.ResponseWriter, b []byte) error {
	out := g.outlet(w)
	return out.send(b)
}

func (g *Gateway) outlet(w http.ResponseWriter) outlet {
	return outlet{w: w, patience: g.cfg.IdleTimeout}
}

// An outlet is the way to a caller, who has the time of its patience to take each
// piece of an answer: up to an eighth more, since to move the deadline costs more
// than to look at it.
type outlet struct {
	w        http.ResponseWriter
	patience time.Duration
	deadline time.Time // the one that is set
}

// send writes b and flushes it.
func (o *outlet) send(b []byte) error {
	if err := o.put(b); err != nil {
		return err
	}
	if err := http.NewResponseController(o.w).Flush(); !errors.Is(err, http.ErrNotSupported) { // a writer that cannot flush does not buffer
		return err
	}
	return nil
}

// put writes b.
func (o *outlet) put(b []byte) error {
	for piece := range slices.Chunk(b, sendBytes) {
		o.extend()
		if _, err := o.w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// extend gives the caller its time to take the next piece.
func (o *outlet) extend() {
	if w, ok := o.w.(interface{ WriteWithin(d, slack time.Duration) }); ok { // it knows what the answer before has set
		w.WriteWithin(o.patience, o.patience/8)
		return
	}
	if now := time.Now(); o.deadline.Sub(now) < o.patience {
		o.deadline = now.Add(o.patience).Add(o.patience / 8)             // no duration may be as long as both
		_ = http.NewResponseController(o.w).SetWriteDeadline(o.deadline) // an in-memory caller has none
	}
}

const sendBytes = 256 << 10
