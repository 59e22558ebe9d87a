package main

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/server/config"
)

// agentsVerbs are the verbs below agentbus agents.
type agentsVerbs struct {
	List  agentsListVerb  `cmd:"" default:"withargs" help:"List the agents: those of the configuration, or, with --server or AGENTBUS_ADMIN_URL, those of a running bus and how they do."`
	Check agentsCheckVerb `cmd:"" help:"Tell what of a remote A2A agent this bus can use, by its card, and what to configure."`
}

type agentsListVerb struct{ operating }

// A listedAgent is an agent, and what a running bus is doing with it.
type listedAgent struct {
	admin.Agent

	Trust    *admin.Trust `json:"trust,omitempty"`     // nil: no bus was asked
	InFlight *int         `json:"in_flight,omitempty"` // likewise
}

// Run lists the agents.
func (v *agentsListVerb) Run(ctx context.Context, a *app) error {
	agents, err := v.agents(ctx, a)
	if err != nil {
		return err
	}
	if len(agents) == 0 {
		return a.answer(agents, "there are no agents; next: declare one under agents: in the configuration\n")
	}
	rows := [][]string{{"NAME", "KIND", "URL", "HEALTH", "IN FLIGHT", "PRICE"}}
	for i := range agents {
		rows = append(rows, agents[i].rows()...)
	}
	return a.answer(agents, a.listing(rows))
}

func (v *agentsListVerb) agents(ctx context.Context, a *app) ([]listedAgent, error) {
	if v.named(a) == "" {
		a.storeOnly = true // what is configured is shown, nobody is called
		c, err := a.load()
		if err != nil {
			return nil, err
		}
		return configured(c), nil
	}
	o, err := a.operator(v.operating)
	if err != nil {
		return nil, err
	}
	agents := []listedAgent{}
	for cursor := ""; ; {
		var page struct {
			Data []listedAgent `json:"data"`
			Next string        `json:"next"`
		}
		if err := o.do(ctx, http.MethodGet, "/agents?limit=1000&cursor="+url.QueryEscape(cursor), &page); err != nil {
			return nil, err
		}
		agents = append(agents, page.Data...)
		if cursor = page.Next; cursor == "" {
			return agents, nil
		}
	}
}

// configured returns the agents of a configuration, of which nothing else is
// known.
func configured(c *config.Config) []listedAgent {
	agents := []listedAgent{}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		a := c.Agents[name]
		l := listedAgent{Agent: admin.Agent{Name: name, Kind: string(a.Kind), Model: a.Model, Aliases: append([]string{}, a.Aliases...), URLs: []admin.URL{}, Breakers: []admin.Breaker{}}}
		places := a.URLs
		if a.URL != "" {
			places = []string{a.URL}
		}
		for _, at := range places {
			l.URLs = append(l.URLs, admin.URL{URL: at})
		}
		if a.Price != nil {
			p := agentbus.Price(*a.Price)
			l.Price = &p
		}
		agents = append(agents, l)
	}
	return agents
}

// rows are the agent as a table shows it: a row for each of its URLs, or one.
func (l *listedAgent) rows() [][]string {
	busy := "-"
	if l.InFlight != nil {
		busy = strconv.Itoa(*l.InFlight)
	}
	first := []string{l.Name, l.Kind, "-", "-", busy, price(l.Price)}
	if len(l.URLs) == 0 {
		return [][]string{first}
	}
	var rows [][]string
	for i, u := range l.URLs {
		row := []string{"", "", u.URL, dash(string(u.Health)), busy, ""}
		if len(l.URLs) > 1 && l.InFlight != nil {
			row[4] = strconv.Itoa(u.InFlight)
		}
		if i == 0 {
			row[0], row[1], row[5] = l.Name, l.Kind, price(l.Price)
		}
		rows = append(rows, row)
	}
	return rows
}

// price is what a call costs, in words: "$0.15 in, $0.6 out, $0.001 a call",
// tokens by the million; "-" when nothing is known.
func price(p *agentbus.Price) string {
	if p == nil {
		return "-"
	}
	var parts []string
	for _, part := range []struct {
		amount agentbus.Micros
		what   string
	}{{p.Input, " in"}, {p.Cached, " cached"}, {p.Output, " out"}, {p.Call, " a call"}} {
		if part.amount > 0 {
			parts = append(parts, "$"+strings.TrimRight(strings.TrimRight(part.amount.USD(), "0"), ".")+part.what)
		}
	}
	if len(parts) == 0 {
		return "free"
	}
	return strings.Join(parts, ", ")
}
