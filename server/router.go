package server

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// A roster is the gateway's router: the configured agents, and those that a run
// brought along. Readers never wait.
type roster struct {
	table atomic.Pointer[gateway.Table]

	mu      sync.Mutex // guards what the next table is made of
	targets []*gateway.Target
	aliases map[string]*gateway.Target
}

func (r *roster) set(targets []*gateway.Target, aliases map[string]*gateway.Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets, r.aliases = targets, aliases
	r.table.Store(gateway.NewTable(targets, aliases))
}

// add makes an agent known, unless one of that name is: two names for one agent
// are no fault, two agents of one name are.
func (r *roster) add(name string, build func() (*gateway.Target, error)) error {
	t, err := build()
	if err != nil {
		return fmt.Errorf("agent %s: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.targets {
		if known.Name == name {
			at := known.Upstreams()
			if len(at) == 1 && at[0].URL == t.URL.String() && known.Model == t.Model {
				return nil
			}
			return &agentbus.Error{
				Code: agentbus.CodeInvalidRequest, Message: "there is an agent " + name + " already, at " + at[0].URL,
				Explain: &agentbus.Explain{Next: "give this one another --name"},
			}
		}
	}
	r.targets = append(slices.Clip(r.targets), t)
	r.table.Store(gateway.NewTable(r.targets, r.aliases))
	return nil
}

// Route returns the agent that name means.
func (r *roster) Route(name string) (*gateway.Target, bool) { return r.table.Load().Route(name) }

// Targets returns every agent.
func (r *roster) Targets() []*gateway.Target { return r.table.Load().Targets() }
