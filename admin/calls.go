package admin

import (
	"net/http"
	"strconv"

	"github.com/agentbus/agentbus"
)

// writeCalls answers with a page of calls, which are in the order of their ids.
func writeCalls(w http.ResponseWriter, p page, calls []agentbus.CallRecord) error {
	after, err := p.number(0)
	if err != nil {
		return err
	}
	l, err := cut(all(calls), p.limit, after, func(_ int, c agentbus.CallRecord) int64 { return c.ID })
	return writePage(w, l, err)
}

// listLive lists what agents are being asked right now. It changes from one
// page to the next.
func (a *API) listLive(w http.ResponseWriter, r *http.Request) error {
	limit, after, _, err := numberedPage(r)
	if err != nil {
		return err
	}
	live := a.cfg.Calls.Live()
	for i := range live {
		live[i].Began = live[i].Began.UTC()
	}
	l, err := cut(all(live), limit, after, ordinal)
	return writePage(w, l, err)
}

func (a *API) listUnfinished(w http.ResponseWriter, r *http.Request) error {
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	calls, err := a.cfg.Calls.Unfinished(r.Context())
	if err != nil {
		return err
	}
	return writeCalls(w, p, calls)
}

// A stop is what came of stopping a run.
type stop struct {
	Run       agentbus.RunID `json:"run"`
	Stopped   bool           `json:"stopped"`   // always true
	Known     bool           `json:"known"`     // the store has heard of the run
	Cancelled int            `json:"cancelled"` // live calls that were cut
}

// stopRun is the kill switch (G14). A run that is not known yet may be stopped:
// its first call is refused then.
func (a *API) stopRun(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	done, err := a.stop(r, agentbus.RunID(r.PathValue("run")))
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, done)
}

// stop stops a run, and keeps who did it. What can never be the id of a run is a
// mistake of whoever typed it, who would believe that something was stopped.
func (a *API) stop(r *http.Request, id agentbus.RunID) (stop, error) {
	if !id.Valid() {
		return stop{}, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "this is not the id of a run",
			Explain: &agentbus.Explain{Rule: "P4", Next: "use 1 to 512 visible ASCII characters without comma and double quote, as GET /admin/v1/runs lists them"},
		}
	}
	x := requestOf(r)
	x.object, x.did = string(id), deed{kind: "run.stop", run: id}
	n, err := a.cfg.Calls.Stop(r.Context(), id, x.who.ID)
	if err != nil {
		return stop{}, err
	}
	_, known, err := a.cfg.Runs.RunSummary(r.Context(), id)
	known = known || err != nil // it is stopped all the same
	return stop{Run: id, Stopped: true, Known: known, Cancelled: n}, nil
}

// A voiding is what came of freeing a call's key.
type voiding struct {
	ID    int64              `json:"id"`
	State agentbus.CallState `json:"state"` // always voided
}

// voidCall frees the key of a call whose outcome is unknown (G24).
func (a *API) voidCall(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	x := requestOf(r)
	id, known := callID(r)
	if !known {
		return notFound("such call", "see GET /admin/v1/calls/unfinished")
	}
	x.object, x.did.kind = strconv.FormatInt(id, 10), "call.void"
	if err := a.cfg.Calls.Void(r.Context(), id, x.who.ID); err != nil {
		return err
	}
	return write(w, http.StatusOK, voiding{ID: id, State: agentbus.CallVoided})
}

// callID returns the id of a call that stands in a path, if it can be one.
func callID(r *http.Request) (id int64, ok bool) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	return id, err == nil && id > 0
}
