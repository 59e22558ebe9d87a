package admin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A Driver goes on with runs of conversations, and makes them again. It is safe
// for concurrent use.
type Driver interface {
	// Drives reports whether the bus knows the conversation of an execution, so that
	// its run can be resumed, forked and replayed here.
	Drives(e agentbus.Execution) bool
	// Resume lets a paused run go on, in the background, on the credential that is
	// kept of it (R18). It may cost limit from now on; nil: what it might before.
	// CodeRunNotFound: no driver of this store performed it. CodeRunConflict: it is
	// not paused, or is driven already.
	Resume(ctx context.Context, run agentbus.RunID, limit *agentbus.Micros) error
	// Fork begins a run that has the turns of another one before turn, at no cost,
	// and asks agents from there on (R23). The operator of the bus pays for it.
	Fork(ctx context.Context, run agentbus.RunID, turn int) (agentbus.RunID, error)
	// Replay makes each execution of a run again from its record, and calls nobody.
	Replay(ctx context.Context, run agentbus.RunID) ([]Replayed, error)
}

// Replayed is what became of the replay of one execution.
type Replayed = console.Replayed

// maxDetail is how many bytes of a divergence are kept with who asked for a replay.
const maxDetail = 512

// A resumption is what came of resuming a run.
type resumption struct {
	Run     agentbus.RunID `json:"run"`
	Resumed bool           `json:"resumed"` // always true
}

// A fork is what came of forking a run.
type fork struct {
	Run  agentbus.RunID `json:"run"` // the new one
	From agentbus.RunID `json:"from"`
	Turn int            `json:"turn"` // the first that was not copied
}

// driver returns who goes on with runs.
func (a *API) driver() (Driver, error) {
	if a.cfg.Driver == nil {
		return nil, notFound("driver on this bus", "use agentbus resume and agentbus replay where its conversations are configured")
	}
	return a.cfg.Driver, nil
}

// drives reports whether a run can be gone on with here.
func (a *API) drives(rec *agentbus.RunRecord) bool {
	return a.cfg.Driver != nil && len(rec.Executions) > 0 && a.cfg.Driver.Drives(rec.Executions[0])
}

// resume lets the run of a request go on, and keeps who did it (U5). limit is in
// dollars; "": as before.
func (a *API) resume(r *http.Request, limit string) (v resumption, err error) {
	x, id := requestOf(r), agentbus.RunID(r.PathValue("run"))
	x.object, x.did = string(id), deed{kind: "run.resume", run: id}
	d, err := a.driver()
	if err != nil {
		return v, err
	}
	var most *agentbus.Micros
	if limit != "" {
		m, err := agentbus.ParseUSD(limit)
		if err != nil {
			return v, invalid("max_usd must be dollars", "send max_usd=2.50, or leave it out")
		}
		most, x.did.detail = &m, "at most $"+m.USD()
	}
	return resumption{id, true}, d.Resume(r.Context(), id, most)
}

func (a *API) resumeRun(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "max_usd")
	if err != nil {
		return err
	}
	v, err := a.resume(r, q.Get("max_usd"))
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, v)
}

// resumePage resumes a run, and shows it (U5, U11).
func (a *API) resumePage(w http.ResponseWriter, r *http.Request) error {
	v, err := a.resume(r, r.PostFormValue("max_usd"))
	if err != nil {
		return err
	}
	http.Redirect(w, r, runPath(v.Run), http.StatusSeeOther)
	return nil
}

// fork forks the run of a request at a turn, and keeps who did it (U5).
func (a *API) fork(r *http.Request, turn string) (v fork, err error) {
	x, id := requestOf(r), agentbus.RunID(r.PathValue("run"))
	x.object, x.did = string(id), deed{kind: "run.fork", run: id, detail: "at turn " + turn}
	d, err := a.driver()
	if err != nil {
		return v, err
	}
	v.From = id
	if v.Turn, err = strconv.Atoi(turn); err != nil || v.Turn < 0 {
		x.did.detail = ""
		return v, invalid("turn must be the number of the first turn that is not copied", "send turn=0 to ask everybody anew")
	}
	v.Run, err = d.Fork(r.Context(), id, v.Turn)
	if err == nil {
		x.did.detail += " as " + string(v.Run)
	}
	return v, err
}

func (a *API) forkRun(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "turn")
	if err != nil {
		return err
	}
	v, err := a.fork(r, q.Get("turn"))
	if err != nil {
		return err
	}
	return write(w, http.StatusCreated, v)
}

// forkPage forks a run, and shows the new one (U5, U11).
func (a *API) forkPage(w http.ResponseWriter, r *http.Request) error {
	v, err := a.fork(r, r.PostFormValue("turn"))
	if err != nil {
		return err
	}
	http.Redirect(w, r, runPath(v.Run), http.StatusSeeOther)
	return nil
}

// replay makes the run of a request again, and keeps who asked for it (U5).
func (a *API) replay(r *http.Request) (v console.Replay, err error) {
	x, id := requestOf(r), agentbus.RunID(r.PathValue("run"))
	x.object, x.did = string(id), deed{kind: "run.replay", run: id}
	d, err := a.driver()
	if err != nil {
		return v, err
	}
	v = console.Replay{Run: id, Identical: true}
	if v.Executions, err = d.Replay(r.Context(), id); err != nil {
		return v, err
	}
	turns, events := 0, 0
	for _, e := range v.Executions {
		turns, events = turns+e.Turns, events+e.Events
		if e.Divergence != "" && v.Identical {
			v.Identical = false
			x.did.detail, _ = clip("diverges: "+e.Divergence, maxDetail)
		}
	}
	if v.Identical {
		x.did.detail = fmt.Sprintf("as recorded: %d turns, %d events", turns, events)
	}
	return v, nil
}

func (a *API) replayRun(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	v, err := a.replay(r)
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, v)
}

// replayPage replays a run, and shows it: what came of that stands among what
// operators did (U5, U11).
func (a *API) replayPage(w http.ResponseWriter, r *http.Request) error {
	v, err := a.replay(r)
	if err != nil {
		return err
	}
	http.Redirect(w, r, runPath(v.Run)+"#did", http.StatusSeeOther)
	return nil
}

// runPath is where the console shows a run.
func runPath(id agentbus.RunID) string { return "/console/runs/" + httpx.Segment(string(id)) }

// asks are the buttons that go on with a run, or make it again (U5, U11).
func (p *runPage) asks(r *http.Request) (asks []console.Ask) {
	csrf := requestOf(r).csrf
	if p.Standing == console.KindPaused {
		resume := console.Ask{
			Label: "Resume", Action: p.path + "/resume", CSRF: csrf, Calm: true, Confirm: "Resume this run",
			Consequence: "It goes on from the turn that failed. Turns that are done are not asked or charged again; new ones are paid by " + string(p.Payer) + ".",
		}
		if p.Halt != nil && p.Halt.Kind == agentbus.HaltBudget {
			resume.Fields = []console.Field{{Name: "max_usd", Label: "It may cost at most, $", Example: "more than " + p.Halt.Limit.USD()}}
		}
		asks = append(asks, resume)
	}
	return append(asks, console.Ask{
		Label: "Replay", Action: p.path + "/replay", CSRF: csrf, Calm: true, Confirm: "Replay this run",
		Consequence: "Every turn is made again from the record, and compared with it. Nobody is called, nothing is charged.",
	})
}

// askFork is the button that forks the run at a turn; nil: it cannot be.
func (p *runPage) askFork(r *http.Request, row *treeRow) *console.Ask {
	if row.Turn == nil || row.Turn.Execution != p.record.Executions[0].ID {
		return nil
	}
	turn := strconv.Itoa(row.Turn.Index)
	return &console.Ask{
		Label: "Fork from here", Action: p.path + "/fork", CSRF: requestOf(r).csrf, Calm: true, Confirm: "Fork at turn " + turn,
		Fields:      []console.Field{{Name: "turn", Value: turn, Hidden: true}},
		Consequence: "A new run has the turns before this one as they were, at no cost, and asks agents from here on. The operator of this bus pays for it.",
	}
}
