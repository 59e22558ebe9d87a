package admin

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"

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

// agentOrders are the figures that the screen of agents is sorted by, the most
// first; it is in the order of their names otherwise.
var agentOrders = map[string]func(*console.AgentRow) float64{
	"in_flight": func(r *console.AgentRow) float64 { return float64(r.InFlight) },
	"calls":     func(r *console.AgentRow) float64 { return float64(r.Calls) },
	"errors":    func(r *console.AgentRow) float64 { return float64(r.Failed()) },
	"p50":       func(r *console.AgentRow) float64 { return r.P50 },
	"p95":       func(r *console.AgentRow) float64 { return r.P95 },
	"p99":       func(r *console.AgentRow) float64 { return r.P99 },
	"last":      func(r *console.AgentRow) float64 { return float64(r.LastSuccess.Unix()) },
	"cost":      func(r *console.AgentRow) float64 { return float64(r.Turn) },
}

// showAgentsPage is the screen agents (U14).
func (a *API) showAgentsPage(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "sort")
	if err != nil {
		return err
	}
	order, known := agentOrders[q.Get("sort")]
	if !known && q.Get("sort") != "" {
		return invalid("agents are not sorted by that", "choose a column of the table")
	}
	records, err := a.records(r, lately())
	if err != nil {
		return err
	}
	agents := a.agents()
	c := console.AgentsPage{
		Live: "/console/live/agents?last=" + version(agents),
		Columns: sortable([]console.Column{
			{Name: "State"},
			{Name: "Agent", URL: "name"},
			{Name: "Where"},
			{Name: "In flight", Number: true, Explain: "calls that this process is executing, of those that it may, and calls that wait for a place", URL: "in_flight"},
			{Name: "Calls", Number: true, Explain: "that ended", URL: "calls"},
			{Name: "Errors", Explain: "by class, the most frequent first", URL: "errors"},
			{Name: "p50", Number: true, URL: "p50"},
			{Name: "p95", Number: true, URL: "p95"},
			{Name: "p99", Number: true, URL: "p99"},
			{Name: "Last success", URL: "last"},
			{Name: "Cost a turn", Number: true, Explain: "of settled calls, on average", URL: "cost"},
		}, "/console/agents", "name", q),
		Empty: console.Empty{Title: "No agents are configured", Text: "An agent is what answers calls: a model behind a URL, an agent that speaks A2A, a program, a conversation.", Command: "agentbus init"},
	}
	for _, agent := range agents {
		c.Partial = c.Partial || records[agent.Name].Partial
		c.Rows = append(c.Rows, console.AgentRow{Agent: agent, Record: records[agent.Name]})
	}
	if c.Columns[1].Sorted != "" {
		c.Columns[1].Sorted = "ascending" // names are
	}
	if known {
		slices.SortStableFunc(c.Rows, func(x, y console.AgentRow) int { return cmp.Compare(order(&y), order(&x)) })
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
