package server

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// A roster is the gateway's router: the configured agents, and those that a run
// brought along. Readers never wait.
type roster struct {
	table atomic.Pointer[gateway.Table]
	// elsewhere makes the target of an agent that the table does not have, by its
	// address; nil: there are none. It asks nobody: what it returns resolves the
	// address when it is called (C8), and is the same for the same address.
	elsewhere func(agentbus.Address) (*gateway.Target, bool)

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

// Route returns the agent that name means. Configured agents go before those of
// others (C35).
func (r *roster) Route(name string) (*gateway.Target, bool) {
	t, ok := r.table.Load().Route(name)
	if ok || r.elsewhere == nil {
		return t, ok
	}
	if domain, local, found := strings.Cut(name, "/"); found && !strings.Contains(name, "@") { // as records name it
		name = local + "@" + domain
	}
	if !strings.Contains(name, "@") {
		return nil, false
	}
	address, err := agentbus.ParseAddress(name)
	if err != nil {
		return nil, false
	}
	return r.elsewhere(address)
}

// Targets returns every agent.
func (r *roster) Targets() []*gateway.Target { return r.table.Load().Targets() }
