package admin

import (
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
)

// An Agent is an agent as operators see it.
type Agent struct {
	Name    string          `json:"name"`
	Kind    string          `json:"kind"`
	Model   string          `json:"model,omitempty"` // its own name of it; "": the caller's is passed on
	Aliases []string        `json:"aliases"`         // beside the built-in ones
	URLs    []URL           `json:"urls"`            // empty: it lives in the bus
	Price   *agentbus.Price `json:"price"`           // null: nothing is known of it
}

// A URL is a place where an agent is reached.
type URL struct {
	URL      string    `json:"url"`
	Health   Health    `json:"health,omitempty"` // "": no bus was asked
	InFlight int       `json:"in_flight"`
	Failures int       `json:"failures"` // in a row
	Ejected  time.Time `json:"ejected_until,omitzero"`
}

// Health says whether calls are sent to a URL.
type Health string

// The states of a URL (G13).
const (
	HealthGood    Health = "good"
	HealthProbing Health = "probing" // one call is let through, to see whether it is back
	HealthEjected Health = "ejected" // none is, until a time
)

// An agent with what the gateway is doing with it.
type agentView struct {
	Agent

	InFlight int `json:"in_flight"` // calls that this process is executing
}

func (a *API) agents() []agentView {
	busy := map[string]int{}
	for _, c := range a.cfg.Calls.Live() {
		busy[c.Agent]++
	}
	views := []agentView{}
	for _, agent := range a.cfg.Agents.Agents() {
		if agent.Aliases == nil {
			agent.Aliases = []string{}
		}
		if agent.URLs == nil {
			agent.URLs = []URL{}
		}
		views = append(views, agentView{agent, busy[agent.Name]})
	}
	return views
}

func (a *API) listAgents(w http.ResponseWriter, r *http.Request) error {
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	l, err := cut(all(a.agents()), p.limit, p.after, func(_ int, v agentView) string { return v.Name })
	return writePage(w, l, err)
}

func (a *API) showAgent(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	for _, v := range a.agents() {
		if v.Name == r.PathValue("name") {
			return write(w, http.StatusOK, v)
		}
	}
	return &agentbus.Error{
		Code: agentbus.CodeAgentNotFound, Message: "there is no agent of that name",
		Explain: &agentbus.Explain{Next: "see GET /admin/v1/agents"},
	}
}
