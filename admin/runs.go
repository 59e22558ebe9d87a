package admin

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// A run is a run at a glance, and how it stands.
type run struct {
	agentbus.RunSummary

	Standing console.Kind `json:"standing"`
	Stopped  bool         `json:"stopped"`
	Limit    int          `json:"depth_limit,omitempty"` // at which its calls are refused now
}

// runOf is the view of a run.
func (a *API) runOf(sum *agentbus.RunSummary) run {
	v := run{RunSummary: *sum, Standing: console.Kind(sum.Standing()), Stopped: sum.Stopper != ""}
	if a.cfg.MaxDepth != nil {
		v.Limit = a.cfg.MaxDepth()
	}
	return v
}

// A runsQuery says which runs are listed.
type runsQuery struct {
	page

	filter agentbus.RunFilter
}

// leasts are the parameters that ask for a least figure.
var leasts = map[string]agentbus.RunFigure{
	"min_cost": agentbus.FigureCost, "min_saved": agentbus.FigureSaved, "min_turns": agentbus.FigureTurns, "min_depth": agentbus.FigureDepth,
	"min_tokens": agentbus.FigureTokens, "min_retries": agentbus.FigureRetries, "min_refusals": agentbus.FigureRefusals,
	"min_duration": agentbus.FigureDuration, "since": agentbus.FigureBegan, "active_since": agentbus.FigureLast,
}

// listParams are the parameters of a list of runs.
var listParams = append([]string{"run", "payer", "agent", "speaker", "conversation", "standing", "sort"}, slices.Sorted(maps.Keys(leasts))...)

// runsQueryOf reads it from a request; more are its other parameters.
func runsQueryOf(r *http.Request, more ...string) (q runsQuery, err error) {
	var v url.Values
	if q.page, v, err = pageOf(r, append(more, listParams...)...); err != nil {
		return q, err
	}
	q.filter = agentbus.RunFilter{
		Run:   strings.TrimPrefix(v.Get("run"), "…"),
		Payer: agentbus.Payer(v.Get("payer")), Agent: v.Get("agent"), Speaker: agentbus.Speaker(v.Get("speaker")), Conversation: v.Get("conversation"),
		Standing: agentbus.Standing(v.Get("standing")), By: agentbus.RunFigure(v.Get("sort")), Least: make(map[agentbus.RunFigure]int64),
	}
	if words := agentbus.Standings(); q.filter.Standing != "" && !slices.Contains(words, q.filter.Standing) {
		return q, &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "no run stands like that", Explain: &agentbus.Explain{Supported: texts(words)}}
	}
	if figures := agentbus.RunFigures(); q.filter.By != "" && !slices.Contains(figures, q.filter.By) {
		return q, &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "runs are not sorted by that", Explain: &agentbus.Explain{Supported: texts(figures)}}
	}
	for name, figure := range leasts {
		if v.Get(name) == "" {
			continue
		}
		if q.filter.Least[figure], err = leastOf(figure, v.Get(name)); err != nil {
			return q, err
		}
	}
	return q, nil
}

// leastOf reads the least value of a figure: dollars, a duration such as 90s, a
// time, or a number.
func leastOf(figure agentbus.RunFigure, text string) (least int64, err error) {
	switch figure {
	case agentbus.FigureCost, agentbus.FigureSaved:
		m, err := agentbus.ParseUSD(text)
		if err != nil || m < 0 {
			return 0, invalid("a least amount must be dollars", "send min_cost=0.25")
		}
		return int64(m), nil
	case agentbus.FigureDuration:
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return 0, invalid("min_duration must be a duration", "send min_duration=90s")
		}
		return d.Microseconds(), nil
	case agentbus.FigureBegan, agentbus.FigureLast:
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", time.DateOnly} {
			if at, err := time.Parse(layout, text); err == nil {
				return at.UnixMicro(), nil
			}
		}
		return 0, invalid("since and active_since must be times in UTC", "send since=2026-05-01T12:00:00Z")
	case agentbus.FigureTurns, agentbus.FigureDepth, agentbus.FigureTokens, agentbus.FigureRetries, agentbus.FigureRefusals:
	}
	if least, err = strconv.ParseInt(text, 10, 64); err != nil || least < 0 {
		return 0, invalid("min_"+string(figure)+" must be a number that is not negative", "leave it out, or send min_"+string(figure)+"=1")
	}
	return least, nil
}

// texts are words as strings.
func texts[T ~string](words []T) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}

// runs is the page of runs that q asks for.
func (a *API) runs(ctx context.Context, q *runsQuery) (list[run], error) {
	sums, err := a.cfg.Runs.RunSummaries(ctx, q.filter, q.limit+1, agentbus.RunID(q.after))
	if err != nil {
		return list[run]{}, err
	}
	l := list[run]{Data: make([]run, 0, len(sums))}
	if len(sums) > q.limit {
		sums = sums[:q.limit]
		l.Next = cursor(string(sums[q.limit-1].Run))
	}
	for i := range sums {
		l.Data = append(l.Data, a.runOf(&sums[i]))
	}
	return l, nil
}

func (a *API) listRuns(w http.ResponseWriter, r *http.Request) error {
	q, err := runsQueryOf(r)
	if err != nil {
		return err
	}
	l, err := a.runs(r.Context(), &q)
	return writePage(w, l, err)
}

// run is one run at a glance.
func (a *API) run(ctx context.Context, id agentbus.RunID) (run, error) {
	sum, found, err := a.cfg.Runs.RunSummary(ctx, id)
	if err == nil && !found {
		err = runNotFound("run")
	}
	return a.runOf(&sum), err
}

func (a *API) showRun(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	v, err := a.run(r.Context(), agentbus.RunID(r.PathValue("run")))
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, v)
}

func runNotFound(what string) error {
	return listedAt("GET /admin/v1/runs", &agentbus.Error{Code: agentbus.CodeRunNotFound, Message: "there is no such " + what + " in this store"})
}

func (a *API) listCalls(w http.ResponseWriter, r *http.Request) error {
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	calls, err := a.cfg.Runs.Calls(r.Context(), agentbus.RunID(r.PathValue("run")))
	if err != nil {
		return err
	}
	return writeCalls(w, p, calls)
}

func (a *API) listExecutions(w http.ResponseWriter, r *http.Request) error {
	limit, after, _, err := numberedPage(r)
	if err != nil {
		return err
	}
	loops, err := a.cfg.Runs.Executions(r.Context(), agentbus.RunID(r.PathValue("run")))
	if err != nil {
		return err
	}
	l, err := cut(all(loops), limit, after, ordinal)
	return writePage(w, l, err)
}

// execution returns the id of the execution that a path names.
func (a *API) execution(r *http.Request) (agentbus.ExecutionID, error) {
	id := agentbus.ExecutionID(r.PathValue("id"))
	_, found, err := a.cfg.Runs.Execution(r.Context(), id)
	if err == nil && !found {
		err = runNotFound("execution")
	}
	return id, err
}

// pageOfExecution reads which page of which execution is asked for.
func (a *API) pageOfExecution(r *http.Request) (id agentbus.ExecutionID, after int64, limit int, err error) {
	p, _, err := pageOf(r)
	if err != nil {
		return "", 0, 0, err
	}
	if after, err = p.number(-1); err != nil {
		return "", 0, 0, err
	}
	id, err = a.execution(r)
	return id, after, p.limit, err
}

func (a *API) listTurns(w http.ResponseWriter, r *http.Request) error {
	id, after, limit, err := a.pageOfExecution(r)
	if err != nil {
		return err
	}
	l, err := cut(a.cfg.Runs.Turns(r.Context(), id), limit, after, func(_ int, t agentbus.Turn) int64 { return int64(t.Index) })
	return writePage(w, l, err)
}

func (a *API) listEvents(w http.ResponseWriter, r *http.Request) error {
	id, after, limit, err := a.pageOfExecution(r)
	if err != nil {
		return err
	}
	events := a.cfg.Runs.Events(r.Context(), id, agentbus.Position(after))
	l, err := cut(events, limit, after, func(_ int, e agentbus.Event) int64 { return int64(e.Position) })
	return writePage(w, l, err)
}
