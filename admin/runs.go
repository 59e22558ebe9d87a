package admin

import (
	"net/http"
	"slices"

	"github.com/agentbus/agentbus"
)

func (a *API) listRuns(w http.ResponseWriter, r *http.Request) error {
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	runs, err := a.cfg.Runs.RunSummaries(r.Context(), p.limit+1, agentbus.RunID(p.after))
	if err != nil {
		return err
	}
	l := list[agentbus.RunSummary]{Data: append([]agentbus.RunSummary{}, runs[:min(len(runs), p.limit)]...)}
	if len(runs) > p.limit {
		l.Next = cursor(string(runs[p.limit-1].Run))
	}
	return write(w, http.StatusOK, l)
}

// A run is a run at a glance, and whether it was stopped.
type run struct {
	agentbus.RunSummary

	Stopped bool `json:"stopped"`
}

func (a *API) showRun(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	id := agentbus.RunID(r.PathValue("run"))
	sum, found, err := a.cfg.Runs.RunSummary(r.Context(), id)
	if err != nil {
		return err
	}
	if !found {
		return runNotFound("run")
	}
	stopped, err := a.cfg.Calls.StoppedRuns(r.Context())
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, run{sum, slices.Contains(stopped, id)})
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
