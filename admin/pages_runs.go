package admin

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"net/url"
	"strconv"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// runsShown is how many runs a page of the console has.
const runsShown = 50

// showRunsPage is the screen of runs (U10).
func (a *API) showRunsPage(w http.ResponseWriter, r *http.Request) error {
	q, err := runsQueryOf(r)
	if err != nil {
		return err
	}
	if r.URL.Query().Get("limit") == "" {
		q.limit = runsShown
	}
	l, err := a.runs(r.Context(), &q)
	if err != nil {
		return err
	}
	values := r.URL.Query()
	c := console.Runs{
		Columns: runColumns(values), Filters: runFilters(values),
		Pager: console.Pager{Text: howMany(len(l.Data), &q)},
		Empty: console.Empty{Title: "No runs yet", Text: "A run is the whole of what one origin sets off: a conversation, or a call and the calls that are made to answer it.", Command: "agentbus run --agent URL#MODEL --agent URL#MODEL \"Say hello\""},
		Live:  "/console/live?" + with(values, "last", version(l)),
	}
	if q.after != "" {
		c.Pager.First = "/console/runs?" + with(values, "cursor", "")
	}
	if l.Next != "" {
		c.Pager.Next = "/console/runs?" + with(values, "cursor", l.Next)
	}
	if c.Filters.Clear != "" {
		c.Empty = console.Empty{Title: "No run is like that", Text: "No run of this store passes the filters.", URL: "/console/runs", Link: "Show all runs"}
	}
	for i := range l.Data {
		v := &l.Data[i]
		c.Rows = append(c.Rows, console.RunRow{RunSummary: v.RunSummary, Kind: v.Standing, Limit: v.Limit, Stop: stopAsk(r, v)})
	}
	return a.page(w, r, "runs", console.Page{Title: "Runs", Here: "/console/runs", Content: c})
}

// followRuns tells the screen of runs when it changes.
func (a *API) followRuns(w http.ResponseWriter, r *http.Request) error {
	q, err := runsQueryOf(r, "last")
	if err != nil {
		return err
	}
	if r.URL.Query().Get("limit") == "" {
		q.limit = runsShown
	}
	return a.follow(w, r, func(ctx context.Context) (string, bool, error) {
		l, err := a.runs(ctx, &q)
		return version(l), false, err
	})
}

// stopAsk is the button that stops a run; nil: it is over.
func stopAsk(r *http.Request, v *run) *console.Ask {
	if v.Standing != console.KindRunning && v.Standing != console.KindWaiting && v.Standing != console.KindPaused {
		return nil
	}
	return &console.Ask{
		Label: "Stop", Action: runPath(v.Run) + "/stop", CSRF: requestOf(r).csrf,
		Consequence: "Its live calls are cut and voided, new ones are refused, for good. Nobody pays for what is cut.", Confirm: "Stop this run",
	}
}

// stopPage stops a run, and shows it (U5).
func (a *API) stopPage(w http.ResponseWriter, r *http.Request) error {
	id := agentbus.RunID(r.PathValue("run"))
	if _, err := a.stop(r, id); err != nil {
		return err
	}
	http.Redirect(w, r, runPath(id), http.StatusSeeOther) // to a page of ours: see runPath
	return nil
}

// version is a word that changes with what is shown.
func version(v any) string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(v) // what was read from a store can be encoded
	return strconv.FormatUint(h.Sum64(), 36)
}

// with returns a query with one parameter changed, or left out when it is "".
func with(q url.Values, name, value string) string {
	out := url.Values{}
	for k, v := range q {
		if k != name && len(v) > 0 && v[0] != "" {
			out[k] = v[:1]
		}
	}
	if value != "" {
		out.Set(name, value)
	}
	return out.Encode()
}

// runColumns are the head of the table of runs; one that sorts is a link.
func runColumns(q url.Values) []console.Column {
	columns := []console.Column{
		{Name: "State"},
		{Name: "Run"},
		{Name: "Root agent"},
		{Name: "Payer"},
		{Name: "Depth", Number: true, Explain: "reached, of the depth at which calls are refused", URL: "depth"},
		{Name: "Turns", Number: true, Explain: "turns that drivers of this store performed, and calls in the ledger", URL: "turns"},
		{Name: "Tokens in / out", Number: true, Explain: "and, of those in, from a cache", URL: "tokens"},
		{Name: "Cost", Number: true, Explain: "settled, and reserved by calls in flight", URL: "cost"},
		{Name: "Saved", Number: true, Explain: "what answers from memory would have cost", URL: "saved"},
		{Name: "Retries", Number: true, Explain: "failed attempts that were retried and not charged", URL: "retries"},
		{Name: "Refused", Number: true, Explain: "calls that policy said no to", URL: "refusals"},
		{Name: "Started", URL: "began"},
		{Name: "Took", Number: true, URL: "duration"},
		{Name: "Last event", URL: "last"},
		{Name: "What can be done", Unsaid: true},
	}
	return sortable(columns, sorting{path: "/console/runs", param: "sort", usual: "began", q: q})
}

// moreFilters are the least figures that the form asks for, and an example of each.
var moreFilters = []console.Field{
	{Name: "since", Label: "Started since", Value: "2026-05-01"},
	{Name: "active_since", Label: "Last event since", Value: "2026-05-01"},
	{Name: "min_depth", Label: "Depth at least", Value: "3"},
	{Name: "min_turns", Label: "Turns at least", Value: "10"},
	{Name: "min_tokens", Label: "Tokens at least", Value: "1000"},
	{Name: "min_cost", Label: "Cost at least, $", Value: "0.25"},
	{Name: "min_saved", Label: "Saved at least, $", Value: "0.01"},
	{Name: "min_retries", Label: "Retries at least", Value: "1"},
	{Name: "min_refusals", Label: "Refused at least", Value: "1"},
	{Name: "min_duration", Label: "Took at least", Value: "90s"},
}

func runFilters(q url.Values) console.Filters {
	f := console.Filters{Fields: []console.Field{{Name: "standing", Label: "State", Value: q.Get("standing"), Options: texts(agentbus.Standings())}}}
	for _, name := range []string{"run", "payer", "agent", "speaker", "conversation"} {
		f.Fields = append(f.Fields, console.Field{Name: name, Label: string(name[0]-'a'+'A') + name[1:], Value: q.Get(name)})
	}
	f.Fields = append(f.Fields, kept(q, "sort")...)
	for _, field := range moreFilters {
		field.Example, field.Value = field.Value, q.Get(field.Name)
		f.More = append(f.More, field)
		f.MoreSet = f.MoreSet || field.Value != ""
	}
	for _, field := range append(f.Fields, f.More...) {
		if field.Value != "" && !field.Hidden {
			f.Clear = "/console/runs"
		}
	}
	return f
}

func howMany(n int, q *runsQuery) string {
	text := strconv.Itoa(n) + " runs"
	if n == 1 {
		text = "1 run"
	}
	if by := q.filter.By; by != "" {
		return text + ", the most " + string(by) + " first"
	}
	return text + ", newest first"
}
