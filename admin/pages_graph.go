package admin

import (
	"cmp"
	"net/http"

	"github.com/agentbus/agentbus/admin/console"
)

// windows are how far back the screens that look back can.
var windows = []string{"1h", "6h", "24h", "168h", "744h"}

// showGraphPage is the screen graph (U12).
func (a *API) showGraphPage(w http.ResponseWriter, r *http.Request) error {
	q, g, err := a.graph(r)
	if err != nil {
		return err
	}
	c := console.GraphPage{
		Graph: g, Drawing: console.Draw(g),
		Columns: []console.Column{
			{Name: "From"},
			{Name: "To"},
			{Name: "Calls", Number: true, Explain: "executed, or being executed"},
			{Name: "Errors", Number: true, Explain: "the share that failed or was refused"},
			{Name: "p95", Number: true, Explain: "19 of 20 took no longer, with the wait for a place"},
			{Name: "Cost", Number: true},
			{Name: "Marks"},
		},
		Filters: console.Filters{Fields: []console.Field{
			{Name: "window", Label: "The last", Value: cmp.Or(q.Get("window"), "24h"), Options: windows}, {Name: "run", Label: "Run", Value: q.Get("run")},
		}},
		Empty: console.Empty{
			Title: "Nobody called anybody", Text: "Agents are drawn here as soon as they are called: who called whom, how often, what failed, and what it cost.",
			Command: "agentbus demo --keep",
		},
	}
	if q.Get("window") != "" || q.Get("run") != "" {
		c.Filters.Clear = "/console/graph"
		c.Empty = console.Empty{Title: "No calls are like that", Text: "Nobody called anybody in this window, or there is no such run.", URL: "/console/graph", Link: "Show the last 24 hours"}
	}
	return a.page(w, r, "graph", console.Page{Title: "Graph", Here: "/console/graph", Content: c})
}
