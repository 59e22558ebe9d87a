package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// A Probed is what was found at one URL of an agent.
type Probed struct {
	URL    string
	Status int // HTTP status of its answer; 0: there was none
	Took   time.Duration
	Err    error // why there was none, without credentials
}

// Good reports whether the agent answers there: with anything but a fault of its
// own.
func (p Probed) Good() bool { return p.Err == nil && p.Status < http.StatusInternalServerError }

// probePatience is how long a URL has to answer.
const probePatience = 5 * time.Second

// Probe asks each URL of an agent now whether it answers: for its card, where it
// speaks A2A, else for its models, with the agent's own credential and nobody
// else's. A URL that was left out and answers is called again from now on (G13);
// what does not answer stays as it was. An agent of this process has none. It is
// safe for concurrent use.
func (t *Target) Probe(ctx context.Context) []Probed {
	if t.Local {
		return nil
	}
	p := t.upstreams()
	found := make([]Probed, len(p.list))
	var all sync.WaitGroup
	for i, u := range p.list {
		all.Go(func() {
			if found[i] = t.probe(ctx, u); found[i].Good() {
				p.mu.Lock()
				u.back()
				p.mu.Unlock()
			}
		})
	}
	all.Wait()
	return found
}

// probe asks one URL.
func (t *Target) probe(ctx context.Context, u *upstream) Probed {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	to := *u.base
	if to.Path = strings.TrimSuffix(to.Path, "/") + "/models"; t.A2A != nil {
		to.Path = strings.TrimSuffix(u.base.Path, "/") + cardPath
	}
	began, found := time.Now(), Probed{URL: u.name}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), http.NoBody)
	if err != nil {
		found.Err = err
		return found
	}
	if !t.Authorization.IsZero() && !t.plaintext() {
		r.Header.Set("Authorization", reveal(t.Authorization))
	}
	resp, err := t.Transport.RoundTrip(r)
	if found.Took = time.Since(began); err != nil {
		found.Err = &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: t.Authorization.Redact(err.Error())}
		return found
	}
	found.Status = resp.StatusCode
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	_ = resp.Body.Close()
	return found
}
