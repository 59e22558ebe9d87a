package admin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// actionsShown is how many of the last actions a screen shows.
const actionsShown = 10

// lately is what the screens of agents look at.
func lately() look {
	l, _ := lookOf(url.Values{}) // which is without fault
	return l
}

// showAgentsPage is the screen agents (U14).
func (a *API) showAgentsPage(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "sort")
	if err != nil {
		return err
	}
	records, err := a.records(r, lately())
	if err != nil {
		return err
	}
	agents := a.agents()
	c := console.AgentsPage{
		Live:  "/console/live/agents?last=" + version(agents),
		Empty: console.Empty{Title: "No agents are configured", Text: "An agent is what answers calls: a model behind a URL, an agent that speaks A2A, a program, a conversation.", Command: "agentbus init"},
	}
	for _, agent := range agents {
		c.Partial = c.Partial || records[agent.Name].Partial
		c.Rows = append(c.Rows, console.AgentRow{Agent: agent, Record: records[agent.Name]})
	}
	if c.Columns, err = sorted(c.Rows, agentColumns(), sorting{path: "/console/agents", param: "sort", usual: "name", q: q}); err != nil {
		return err
	}
	return a.page(w, r, "agents", console.Page{Title: "Agents", Here: "/console/agents", Content: c})
}

// followAgents tells the screens of agents when one changes.
func (a *API) followAgents(w http.ResponseWriter, r *http.Request) error {
	return a.follow(w, r, func(context.Context) (string, bool, error) { return version(a.agents()), false, nil })
}

// showAgentPage is the screen of one agent (U14).
func (a *API) showAgentPage(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return a.agentPage(w, r, nil)
}

// agentPage shows an agent, and what a probe found.
func (a *API) agentPage(w http.ResponseWriter, r *http.Request, found *probing) error {
	agent, err := a.agent(r.PathValue("name"))
	if err != nil {
		return err
	}
	records, err := a.records(r, lately())
	if err != nil {
		return err
	}
	done, err := a.actions(r.Context(), agentbus.ActionQuery{Object: agent.Name, Limit: actionsShown})
	if err != nil {
		return err
	}
	csrf := requestOf(r).csrf
	c := console.AgentPage{
		AgentRow: console.AgentRow{Agent: agent, Record: records[agent.Name], CSRF: csrf}, Actions: done.Data,
		Live: "/console/live/agents?last=" + version(a.agents()),
		Drain: console.Ask{
			Label: "Drain", Action: agentPath(agent.Name) + "/drain", CSRF: csrf, Confirm: "Drain this agent",
			Consequence: "It gets no new calls until it is enabled again. Calls under way go on, and duplicates of finished ones are answered from memory.",
		},
	}
	if found != nil {
		c.Probed, c.Probes = true, found.Probes
	}
	return a.page(w, r, "agent", console.Page{Title: "Agent " + agent.Name, Here: "/console/agents", Content: c})
}

func agentPath(name string) string { return "/console/agents/" + url.PathEscape(name) }

func (a *API) probePage(w http.ResponseWriter, r *http.Request) error {
	found, err := a.probe(r.Context(), requestOf(r), r.PathValue("name"))
	if err != nil {
		return err
	}
	return a.agentPage(w, r, &found)
}

func (a *API) drainPage(w http.ResponseWriter, r *http.Request) error {
	return a.drainedPage(w, r, true)
}

func (a *API) enablePage(w http.ResponseWriter, r *http.Request) error {
	return a.drainedPage(w, r, false)
}

// drainedPage takes an agent out, or in again, and shows it (U5).
func (a *API) drainedPage(w http.ResponseWriter, r *http.Request, drained bool) error {
	agent, err := a.setDrained(r.Context(), requestOf(r), r.PathValue("name"), drained)
	if err != nil {
		return err
	}
	http.Redirect(w, r, agentPath(agent.Name), http.StatusSeeOther)
	return nil
}
