package openwop

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/internal/httpx"
)

// read serves GET /v1/runs/{id}.
func (h *Host) read(w http.ResponseWriter, r *http.Request, _ agentbus.Principal, e *agentbus.Execution) error {
	f, err := h.fold(r.Context(), e)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, f.State())
}

// maxList is how many runs are listed at once.
const maxList = 100

// list serves GET /v1/runs: the runs of the principal, newest first.
func (h *Host) list(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error {
	q := r.URL.Query()
	limit, err := number(q.Get("limit"), maxList, 1, maxList)
	if err != nil {
		return invalid("limit is not between 1 and %d", maxList)
	}
	before := q.Get("before")
	if before != "" {
		if _, err := h.find(r, p, before); errors.Is(err, errNoRun) { // none behind it would look like the end of the list
			return invalid("before is no run of yours: send the id of the last one that you have")
		} else if err != nil {
			return err
		}
	}
	runs, err := h.cfg.Store.PayersRuns(r.Context(), agentbus.RunQuery{
		Payer: agentbus.Payer(p.ID), Workflow: q.Get("workflowId"), Before: agentbus.ExecutionID(before), Limit: limit,
	})
	if err != nil {
		return err
	}
	out := make([]*Snapshot, 0, len(runs))
	for i := range runs {
		s, err := h.summary(r.Context(), &runs[i])
		if err != nil {
			return err
		}
		out = append(out, s)
	}
	return answer(w, http.StatusOK, map[string]any{"runs": out})
}

// summary is what a list tells of a run. One whose events are gone is told from its
// row: it is over, and keeps no other from being listed.
func (h *Host) summary(ctx context.Context, e *agentbus.Execution) (*Snapshot, error) {
	f, err := h.ends(ctx, e)
	if err == nil && !f.snap.Status.Terminal() {
		f, err = h.fold(ctx, e)
	}
	if agentbus.CodeOf(err) == agentbus.CodeReplyExpired {
		began, ended := e.Began.UTC(), e.Ended.UTC()
		return &Snapshot{RunID: e.ID, WorkflowID: e.Conversation, Status: endOf(e.Halt), StartedAt: &began, CompletedAt: &ended}, nil
	}
	if err != nil {
		return nil, err
	}
	s := f.State()
	return &Snapshot{RunID: s.RunID, WorkflowID: s.WorkflowID, Status: s.Status, StartedAt: s.StartedAt, CompletedAt: s.CompletedAt}, nil
}

// ends folds the first event of a run and the last one: of a run that is over they
// tell what a list does, however long it was.
func (h *Host) ends(ctx context.Context, e *agentbus.Execution) (*Fold, error) {
	f := foldOf(e)
	if e.State != agentbus.RunDone {
		return f, nil
	}
	n, err := h.cfg.Store.Appended(ctx, e.ID)
	if err != nil {
		return nil, err
	}
	for _, at := range []agentbus.Position{0, n - 1} {
		for ev, err := range h.cfg.Store.Events(ctx, e.ID, at-1) {
			if err != nil {
				return nil, err
			}
			f.Add(ev)
			break
		}
	}
	return f, nil
}

// number reads a whole number between least and most; "" is otherwise.
func number(s string, otherwise, least, most int) (int, error) {
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(s)
	if err == nil && (n < least || n > most) {
		err = strconv.ErrRange
	}
	return n, err
}

// events serves GET /v1/runs/{id}/events: the mode is looked at first (E12).
func (h *Host) events(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error {
	q := r.URL.Query()
	modes, err := eventlog.ParseModes(q.Get("streamMode"))
	if err != nil {
		e := refuse(http.StatusBadRequest, "unsupported_stream_mode", "%s", agentbus.AsError(err).Message)
		e.details = map[string]any{"supported": agentbus.AsError(err).Explain.Supported}
		return e
	}
	e, err := h.find(r, p, r.PathValue("id"))
	if err != nil {
		return err
	}
	buffer, err := number(q.Get("bufferMs"), 0, 0, 5000)
	if err != nil {
		return invalid("bufferMs is not between 0 and 5000")
	}
	if httpx.Prefers(r.Header, "application/json", "text/event-stream") { // E12
		return h.allEvents(w, r, e, modes)
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = q.Get("lastEventId")
	}
	after, err := eventlog.ParseID(last)
	if err != nil {
		return err
	}
	if !h.enter() {
		return &agentbus.Error{Code: agentbus.CodeOverloaded, Message: "too many follow already"}
	}
	defer h.leave()
	s := eventlog.Stream{
		Follow: eventlog.Config{Source: h.cfg.Store, Execution: e.ID, After: after}, Modes: modes, Buffer: time.Duration(buffer) * time.Millisecond,
	}
	if modes.Values() {
		s.State = foldOf(e)
	}
	ctx, cancel := h.while(r)
	defer cancel()
	if err := s.Serve(ctx, w); err != nil && w.Header().Get("Content-Type") == "" {
		return err // nothing was written
	}
	// Otherwise the reader has left, or was too slow, or the store broke behind the
	// first byte: it comes back.
	return nil
}

// enter counts a follower in, unless there are too many.
func (h *Host) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.followers >= h.cfg.Followers {
		return false
	}
	h.followers++
	return true
}

func (h *Host) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.followers--
}

// allEvents answers with the log as one JSON document, all of it unless it is
// paged: every type, unless a mode is named (E12).
func (h *Host) allEvents(w http.ResponseWriter, r *http.Request, e *agentbus.Execution, modes eventlog.Modes) error {
	q := r.URL.Query()
	after, err := eventlog.ParseID(q.Get("lastSequence"))
	if err != nil {
		return err
	}
	limit, err := number(q.Get("limit"), maxEvents, 1, maxEvents)
	if err != nil {
		return invalid("limit is not between 1 and %d", maxEvents)
	}
	docs := []eventlog.Doc{}
	for ev, err := range h.cfg.Store.Events(r.Context(), e.ID, after) {
		if err != nil {
			return err
		}
		if q.Get("streamMode") == "" || modes.Passes(ev.Type) {
			docs = append(docs, eventlog.Document(&ev))
		}
		if len(docs) == limit {
			break
		}
	}
	return answer(w, http.StatusOK, map[string]any{"events": docs})
}

// maxEvents is how many events one document has at most: the rest is read with
// lastSequence, or as a stream. maxPoll is that of a poll (E15).
const (
	maxEvents = 100_000
	maxPoll   = 1000
)

// poll serves GET /v1/runs/{id}/events/poll (E15).
func (h *Host) poll(w http.ResponseWriter, r *http.Request, _ agentbus.Principal, e *agentbus.Execution) error {
	q := r.URL.Query()
	after, err := eventlog.ParseID(q.Get("lastSequence"))
	if err != nil {
		return err
	}
	wait, err := number(q.Get("timeout"), 0, 0, 30)
	if err != nil {
		return invalid("timeout is not between 0 and 30 seconds")
	}
	f := eventlog.NewFollower(eventlog.Config{Source: h.cfg.Store, Execution: e.ID, After: after, Page: maxPoll})
	ctx, cancel := h.while(r)
	defer cancel()
	page, err := f.Next(ctx, time.Duration(wait)*time.Second)
	if err != nil && ctx.Err() == nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"events": eventlog.Documents(page), "isComplete": f.Ended()})
}

// readWorkflow serves GET /v1/workflows/{id}.
func (h *Host) readWorkflow(w http.ResponseWriter, r *http.Request, _ agentbus.Principal) error {
	id := r.PathValue("id")
	wf := h.cfg.workflow(id)
	if wf == nil {
		wf = h.conversation(id)
	}
	if wf == nil || id == liveWorkflow {
		return notFound("workflow_not_found", "there is no workflow %.100q", id)
	}
	return answer(w, http.StatusOK, wf)
}

// cancelRun serves POST /v1/runs/{id}/cancel.
func (h *Host) cancelRun(w http.ResponseWriter, r *http.Request, p agentbus.Principal, e *agentbus.Execution) error {
	var req struct {
		Reason string `json:"reason"`
	}
	if err := h.body(r, &req); err != nil {
		return err
	}
	if len(req.Reason) > maxReason {
		return invalid("reason has more than %d bytes", maxReason)
	}
	s, err := h.cancel(r.Context(), e, h.redactFor(r).Text(req.Reason), p.ID)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"runId": e.ID, "status": s})
}

const maxReason = 1024
