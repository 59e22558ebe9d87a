package admin

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"

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
	v := run{RunSummary: *sum, Standing: standing(sum), Stopped: sum.Stopper != ""}
	if a.cfg.MaxDepth != nil {
		v.Limit = a.cfg.MaxDepth()
	}
	return v
}

// standing is the one word for how a run stands. A run that no driver of this
// store performs stands as its first call does.
func standing(s *agentbus.RunSummary) console.Kind {
	switch {
	case s.Stopper != "":
		return console.KindStopped
	case s.State == agentbus.RunRunning, s.State == "" && s.Live > 0:
		return console.KindRunning
	case s.State == agentbus.RunPaused && s.Halt != nil && (s.Halt.Kind == agentbus.HaltWaiting || s.Halt.Kind == agentbus.HaltWaitingAuth):
		return console.KindWaiting
	case s.State == agentbus.RunPaused:
		return console.KindPaused
	case s.State == agentbus.RunDone && s.Halt != nil && s.Halt.Failed, s.State == "" && s.First == agentbus.CallVoided:
		return console.KindFailed
	case s.State == "" && s.First == agentbus.CallRefused:
		return console.KindRefused
	}
	return console.KindDone
}

// standings are the words for how a run stands.
var standings = []string{"running", "waiting", "refused", "failed", "paused", "stopped", "done"}

// orders are what runs are sorted by, the most first.
var orders = map[string]func(r *run) int64{
	"cost":     func(r *run) int64 { return int64(r.Cost + r.Held) },
	"saved":    func(r *run) int64 { return int64(r.Saved) },
	"turns":    func(r *run) int64 { return int64(r.Turns + r.Calls) },
	"depth":    func(r *run) int64 { return int64(r.MaxDepth) },
	"tokens":   func(r *run) int64 { return r.Usage.InputTokens + r.Usage.OutputTokens },
	"retries":  func(r *run) int64 { return int64(r.Retries) },
	"refusals": func(r *run) int64 { return int64(r.Refusals) },
	"duration": func(r *run) int64 { return int64(r.Last.Sub(r.Began)) },
	"last":     func(r *run) int64 { return r.Last.UnixMicro() },
}

// A runsQuery says which runs are listed.
type runsQuery struct {
	page

	filter   agentbus.RunFilter
	standing console.Kind // "": any
	sort     string       // one of orders; "": newest first
}

// runsQueryOf reads it from a request.
func runsQueryOf(r *http.Request, more ...string) (q runsQuery, err error) {
	var v url.Values
	if q.page, v, err = pageOf(r, append(more, "payer", "agent", "speaker", "conversation", "standing", "sort")...); err != nil {
		return q, err
	}
	q.filter = agentbus.RunFilter{
		Payer: agentbus.Payer(v.Get("payer")), Agent: v.Get("agent"), Speaker: agentbus.Speaker(v.Get("speaker")), Conversation: v.Get("conversation"),
	}
	q.standing, q.sort = console.Kind(v.Get("standing")), v.Get("sort")
	if q.standing != "" && !slices.Contains(standings, string(q.standing)) {
		return q, &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "no run stands like that", Explain: &agentbus.Explain{Supported: standings}}
	}
	if q.sort != "" && orders[q.sort] == nil {
		return q, &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "runs are not sorted by that", Explain: &agentbus.Explain{Supported: slices.Sorted(maps.Keys(orders))}}
	}
	return q, nil
}

// maxLooked is how many runs are looked at for one page, of those that are sorted
// or chosen by how they stand.
const maxLooked = 1000

// runs is the page of runs that q asks for. What the store does not sort or
// choose by is looked for among the maxLooked newest behind the cursor; with a
// sort there is no next page.
func (a *API) runs(ctx context.Context, q *runsQuery) (list[run], error) {
	l := list[run]{Data: []run{}}
	want := q.limit
	if q.sort != "" {
		want = maxLooked
	}
	before, looked := agentbus.RunID(q.after), 0
	for {
		step := min(want-len(l.Data), maxLooked-looked)
		sums, err := a.cfg.Runs.RunSummaries(ctx, q.filter, step+1, before)
		if err != nil {
			return list[run]{}, err
		}
		more := len(sums) > step
		for i := range sums[:min(len(sums), step)] {
			if looked, before = looked+1, sums[i].Run; q.standing == "" || q.standing == standing(&sums[i]) {
				l.Data = append(l.Data, a.runOf(&sums[i]))
			}
		}
		if !more {
			break
		}
		if len(l.Data) == want || looked == maxLooked {
			l.Next = cursor(string(before))
			break
		}
	}
	if by := orders[q.sort]; by != nil {
		slices.SortStableFunc(l.Data, func(x, y run) int { return cmp.Compare(by(&y), by(&x)) })
		l.Data, l.Next = l.Data[:min(len(l.Data), q.limit)], ""
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
	return &agentbus.Error{
		Code: agentbus.CodeRunNotFound, Message: "there is no such " + what + " in this store",
		Explain: &agentbus.Explain{Next: "see GET /admin/v1/runs"},
	}
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
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	after, err := p.number(0)
	if err != nil {
		return err
	}
	loops, err := a.cfg.Runs.Executions(r.Context(), agentbus.RunID(r.PathValue("run")))
	if err != nil {
		return err
	}
	l, err := cut(all(loops), p.limit, after, ordinal)
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
