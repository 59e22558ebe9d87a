package admin

import (
	"context"
	"net/http"
	"slices"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

type (
	// Agent is what a Directory tells of an agent.
	Agent = console.Agent
	// URL is a place where an agent is reached.
	URL = console.URL
	// Health says whether calls are sent to a URL.
	Health = console.Health
	// Trust is what an agent is sent.
	Trust = console.Trust
	// Breaker is the state of the breaker of a participant.
	Breaker = console.Breaker
	// Probe is what was found at a place of an agent.
	Probe = console.Probe
	// Cap is a budget of a payer.
	Cap = console.Cap
)

// The states of a URL (G13).
const (
	HealthGood    = console.HealthGood
	HealthProbing = console.HealthProbing
	HealthEjected = console.HealthEjected
)

// agents returns every agent, with what the gateway is doing with it.
func (a *API) agents() []Agent {
	busy := map[string]int{}
	for _, c := range a.cfg.Calls.Live() {
		busy[c.Agent]++
	}
	views := []Agent{}
	for _, agent := range a.cfg.Agents.Agents() {
		agent.Aliases = append([]string{}, agent.Aliases...)
		agent.URLs = append([]URL{}, agent.URLs...)
		agent.Breakers = append([]Breaker{}, agent.Breakers...)
		agent.Trust.Sent = append([]string{}, agent.Trust.Sent...)
		agent.InFlight = busy[agent.Name]
		views = append(views, agent)
	}
	return views
}

// agent returns the agent of that name.
func (a *API) agent(name string) (Agent, error) {
	agents := a.agents()
	if at := slices.IndexFunc(agents, func(v Agent) bool { return v.Name == name }); at >= 0 {
		return agents[at], nil
	}
	return Agent{}, listedAt("GET /admin/v1/agents", &agentbus.Error{Code: agentbus.CodeAgentNotFound, Message: "there is no agent of that name"})
}

func (a *API) listAgents(w http.ResponseWriter, r *http.Request) error {
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	l, err := cut(all(a.agents()), p.limit, p.after, func(_ int, v Agent) string { return v.Name })
	return writePage(w, l, err)
}

func (a *API) showAgent(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	v, err := a.agent(r.PathValue("name"))
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, v)
}

func (a *API) drainAgent(w http.ResponseWriter, r *http.Request) error {
	return a.answerDrained(w, r, true)
}

func (a *API) enableAgent(w http.ResponseWriter, r *http.Request) error {
	return a.answerDrained(w, r, false)
}

func (a *API) answerDrained(w http.ResponseWriter, r *http.Request, drained bool) error {
	if _, err := query(r); err != nil {
		return err
	}
	v, err := a.setDrained(r.Context(), requestOf(r), r.PathValue("name"), drained)
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, v)
}

// setDrained takes an agent out, or in again (U14).
func (a *API) setDrained(ctx context.Context, x *request, name string, drained bool) (Agent, error) {
	x.object, x.did.kind = name, "agent.enable"
	if drained {
		x.did.kind = "agent.drain"
	}
	if _, err := a.agent(name); err != nil {
		return Agent{}, err
	}
	if err := a.cfg.Agents.Drain(ctx, name, x.who.ID, drained); err != nil {
		return Agent{}, err
	}
	return a.agent(name)
}

// A probing is what a probe of an agent found.
type probing struct {
	Agent  string  `json:"agent"`
	Probes []Probe `json:"probes"` // empty: it lives in the bus
}

func (a *API) probeAgent(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	found, err := a.probe(r.Context(), requestOf(r), r.PathValue("name"))
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, found)
}

// probe finds out now whether an agent can be reached (U14).
func (a *API) probe(ctx context.Context, x *request, name string) (found probing, err error) {
	x.object, x.did.kind = name, "agent.probe"
	if _, err := a.agent(name); err != nil {
		return found, err
	}
	probes, err := a.cfg.Agents.Probe(ctx, name)
	return probing{Agent: name, Probes: append([]Probe{}, probes...)}, err
}
