package server

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/server/config"
)

// A directory is the agents of a bus.
type directory struct{ *Server }

// Agents returns the agents, those that a run brought along too.
func (d directory) Agents() []admin.Agent {
	var agents []admin.Agent
	now := d.now()
	out := d.drained.Load()
	for _, t := range now.router.Targets() {
		a := admin.Agent{Name: t.Name, Kind: t.Kind, Model: t.Model, Address: t.Address.String(), Limit: t.Concurrency}
		c, configured := now.cfg.Agents[t.Name]
		if configured {
			a.Aliases, a.Command = c.Aliases, c.Command
			if c.Price != nil {
				a.Price = &t.Price
			}
		}
		if !t.Local {
			a.URLs = urls(t)
		}
		if a.Limit > 0 {
			a.Queue = t.Queue
			_, a.Waiting = now.gateway.Busy(t.Name)
		}
		a.Card = "/a2a/" + t.Name + "/.well-known/agent-card.json"
		a.Trust, a.Breakers = trust(t, c), now.breakersOf(t.Name)
		if out != nil {
			if at := slices.IndexFunc(*out, func(x agentbus.Drained) bool { return x.Agent == t.Name }); at >= 0 {
				a.Drained = &(*out)[at]
			}
		}
		agents = append(agents, a)
	}
	return agents
}

// trust says what an agent is sent of credentials, and of who calls.
func trust(t *gateway.Target, c config.Agent) (is admin.Trust) {
	say := func(yes bool, what string) {
		if yes {
			is.Sent = append(is.Sent, what)
		}
	}
	is.Verbatim = !t.Local || c.ForwardEnv != ""
	say(!t.Authorization.IsZero(), "its own key")
	say(t.Passthrough, "the caller's Authorization, as it came")
	say(!t.Local, "the payer's credential, as it came")
	say(c.ForwardEnv != "", "the payer's credential, in "+c.ForwardEnv)
	say(t.Kagent, "who the user is (x-user-id)")
	say(len(c.Env) > 0, "variables of the bus: "+strings.Join(c.Env, ", "))
	say(t.AllowPlaintext, "credentials over plain HTTP")
	return is
}

// breakersOf returns the breakers of an agent, by conversation (R12).
func (s *wiring) breakersOf(agent string) (all []admin.Breaker) {
	for g, b := range s.breakers {
		def := s.cfg.Conversations[g.conversation]
		for i := range def.Participants {
			if p := &def.Participants[i]; p.Slug == g.slug && p.Agent == agent {
				all = append(all, admin.Breaker{Conversation: g.conversation, State: b.State()})
			}
		}
	}
	slices.SortFunc(all, func(a, b admin.Breaker) int { return strings.Compare(a.Conversation, b.Conversation) })
	return all
}

// Probe finds out now whether an agent can be reached (U14).
func (d directory) Probe(ctx context.Context, name string) (found []admin.Probe, err error) {
	now := d.now()
	if c, ok := now.cfg.Agents[name]; ok && len(c.Command) > 0 {
		return []admin.Probe{probeCommand(c.Command[0])}, nil
	}
	for _, t := range now.router.Targets() {
		if t.Name != name {
			continue
		}
		for _, p := range t.Probe(ctx) {
			one := admin.Probe{Where: p.URL, OK: p.Good(), Status: p.Status, Took: float64(p.Took.Microseconds()) / 1000, Text: "it answers"}
			switch {
			case p.Err != nil:
				one.Text = p.Err.Error()
			case !one.OK:
				one.Text = "it answers with a fault of its own: HTTP " + strconv.Itoa(p.Status)
			}
			found = append(found, one)
		}
	}
	return found, nil
}

// probeCommand says whether a program is there.
func probeCommand(name string) admin.Probe {
	began := time.Now()
	path, err := exec.LookPath(name)
	p := admin.Probe{Where: name, OK: err == nil, Took: float64(time.Since(began).Microseconds()) / 1000, Text: "the program is " + path}
	if err != nil {
		p.Text = err.Error()
	}
	return p
}

// Drain takes an agent out, here and in every bus that opens the store later, or
// in again (U14).
func (d directory) Drain(ctx context.Context, name, by string, drained bool) error {
	if err := d.store.Drain(ctx, agentbus.Drained{Agent: name, By: by, At: time.Now().UTC()}, drained); err != nil {
		return err
	}
	return d.readDrained(ctx)
}

// readDrained takes the agents out that the store says are.
func (s *Server) readDrained(ctx context.Context) error {
	out, err := s.store.DrainedAgents(ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(out))
	for i := range out {
		names[i] = out[i].Agent
	}
	s.now().gateway.SetDrained(names)
	s.drained.Store(&out)
	return nil
}

// urls returns how each URL of an agent does (G13).
func urls(t *gateway.Target) []admin.URL {
	var all []admin.URL
	for _, u := range t.Upstreams() {
		health := admin.HealthGood
		switch {
		case u.Probing || !u.EjectedUntil.IsZero() && !time.Now().Before(u.EjectedUntil): // the next call finds out
			health = admin.HealthProbing
		case !u.EjectedUntil.IsZero():
			health = admin.HealthEjected
		}
		all = append(all, admin.URL{URL: u.URL, Health: health, InFlight: u.InFlight, Failures: u.Failures, Ejected: u.EjectedUntil.UTC()})
	}
	return all
}
