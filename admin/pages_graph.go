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
	q, g, err := a.graph(r, "sort")
	if err != nil {
		return err
	}
	c := console.GraphPage{
		Graph: g, Drawing: console.Draw(g),
		Filters: console.Filters{Fields: append([]console.Field{
			{Name: "window", Label: "The last", Value: cmp.Or(q.Get("window"), "24h"), Options: windows}, {Name: "run", Label: "Run", Value: q.Get("run")},
		}, kept(q, "sort")...)},
		Empty: console.Empty{
			Title: "Nobody called anybody", Text: "Agents are drawn here as soon as they are called: who called whom, how often, what failed, and what it cost.",
			Command: "agentbus call AGENT \"Say hello\"",
		},
	}
	if c.Columns, err = sorted(c.Edges, edgeColumns(), sorting{path: "/console/graph", param: "sort", usual: "from", part: "calls", q: q}); err != nil {
		return err
	}
	if q.Get("window") != "" || q.Get("run") != "" {
		c.Filters.Clear = "/console/graph"
		c.Empty = console.Empty{Title: "No calls are like that", Text: "Nobody called anybody in this window, or there is no such run.", URL: "/console/graph", Link: "Show the last 24 hours"}
	}
	return a.page(w, r, "graph", console.Page{Title: "Graph", Here: "/console/graph", Content: c})
}
