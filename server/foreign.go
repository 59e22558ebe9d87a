package server

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/openai"
)

// manyForeign is how many agents of others are kept at once. One that is left out
// is made again when it is called.
const manyForeign = 1000

// foreigners are the agents of other organisations that were asked for by
// address (C35).
type foreigners struct {
	wiring *wiring
	wire   http.RoundTripper // to strangers
	known  *lru.Cache[string, *gateway.Target]
}

func (s *wiring) buildForeign() {
	known, _ := lru.New[string, *gateway.Target](manyForeign) // fails for a size that is not positive
	f := &foreigners{wiring: s, wire: httpx.Lowercase(looked{s.dialer, s.dialer.Transport()}), known: known}
	s.router.elsewhere = f.target
}

// target returns the agent at an address of a domain that is resolved, the same
// for the same address. Nobody is asked before it is called (C8).
func (f *foreigners) target(at agentbus.Address) (*gateway.Target, bool) {
	if !f.wiring.resolver.Knows(at) {
		return nil, false
	}
	key := at.Key()
	if t, ok := f.known.Get(key); ok {
		return t, true
	}
	s := f.wiring
	b := &foreigner{foreigners: f, address: at, name: foreignName(at)}
	h := openai.Handler(openai.HandlerConfig{Backend: agentbus.Wrap(b, told, called), Log: s.log, MaxBody: int64(s.cfg.Limits.MaxBody)})
	here, err := url.Parse(memoryURL)
	if err != nil {
		return nil, false
	}
	t := &gateway.Target{Name: b.name, Kind: "a2a", Address: at, URL: here, Local: true, Transport: httpx.Memory(h)}
	if first, there, _ := f.known.PeekOrAdd(key, t); there {
		return first, true
	}
	return t, true
}

// foreignName is what the agent at an address is called in records and errors,
// which no @ may stand in (X32): no configured agent has a slash in its name.
func foreignName(at agentbus.Address) string {
	local, _, _ := strings.Cut(strings.TrimPrefix(at.Key(), "@"), "@")
	return at.Domain() + "/" + local
}

// A foreigner is one of them, as a backend.
type foreigner struct {
	*foreigners

	address agentbus.Address
	name    string

	mu       sync.Mutex // guards the rest
	endpoint string
	backend  agentbus.Backend // of that endpoint
}

// Call finds the agent and calls it. It is told no credential of ours or of the
// caller's, and what it says it cost is no cost here: a stranger wrote it (C33).
func (f *foreigner) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		at, err := f.wiring.resolver.Resolve(ctx, f.address)
		if err != nil {
			yield(agentbus.Chunk{}, err)
			return
		}
		b, err := f.at(at.Endpoint.String())
		if err != nil {
			yield(agentbus.Chunk{}, err)
			return
		}
		call := *c
		call.Lineage.Auth = agentbus.Credential{}
		for chunk, err := range b.Call(ctx, &call) {
			if chunk.Usage != nil {
				u := *chunk.Usage
				u.Cost, chunk.Usage = 0, &u
			}
			if !yield(chunk, err) {
				return
			}
		}
	}
}

// at returns the backend of the endpoint that the address leads to now.
func (f *foreigner) at(endpoint string) (agentbus.Backend, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.endpoint == endpoint {
		return f.backend, nil
	}
	b, err := a2a.NewBackend(a2a.BackendConfig{
		Name: f.name, URL: endpoint, Endpoint: true, Transport: f.wire, Extensions: understood, Sessions: f.wiring.store, Payer: payerOf,
	})
	if err != nil {
		return nil, &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the endpoint that the agent's card names cannot be called", Err: err}
	}
	f.endpoint, f.backend = endpoint, b
	return b, nil
}

// payerOf returns on whose bill a call is made, as the gateway has said.
func payerOf(ctx context.Context) agentbus.Payer {
	mark, _ := gateway.InProcessOf(ctx)
	return mark.Payer
}
