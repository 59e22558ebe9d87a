package openwop

import (
	"encoding/json"
	"net/http"

	"github.com/agentbus/agentbus"
)

// A forking is where and how a conversation is forked.
type forking struct {
	from    agentbus.Position
	overlay json.RawMessage
	ended   bool // the source has
}

// forkConversation forks a run that the host does not drive itself: a branch
// copies whole turns, as many as had ended before fromSeq, and a replay tells its
// source again (E51).
func (h *Host) forkConversation(w http.ResponseWriter, r *http.Request, p agentbus.Principal, e *agentbus.Execution, req *forkRequest, f forking) error {
	if h.cfg.Conversations == nil {
		return refuse(http.StatusConflict, "run_not_forkable", "the host does not drive this run")
	}
	id := agentbus.ExecutionID(agentbus.NewRunID())
	var err error
	if req.Mode == "replay" {
		err = h.replayConversation(r, p, e, id, f)
	} else {
		err = h.branchConversation(r, e, id, f)
	}
	if err != nil {
		return err
	}
	return forked(w, id, e.ID, f.from, req.Mode)
}

// replayConversation drives a conversation again over its record, and then tells
// what it told, and where that was not the same.
func (h *Host) replayConversation(r *http.Request, p agentbus.Principal, e *agentbus.Execution, id agentbus.ExecutionID, f forking) error {
	if !f.ended {
		return refuse(http.StatusConflict, "run_active", "a conversation is replayed once it has ended")
	}
	source := e.ID
	if of, again := readSpec(e); again { // a replay of a replay tells what the first one told
		source = of.Fork.Source
	}
	diverged, err := h.cfg.Conversations.Replay(r.Context(), source)
	if err != nil {
		return err
	}
	n, err := h.cfg.Store.Appended(r.Context(), source)
	if err != nil {
		return err
	}
	if diverged != nil { // it stands before the event that ends the run (E10)
		diverged.At = max(1, min(diverged.At, n-1))
	}
	s := spec{Workflow: e.Conversation, Fork: &fork{Source: source, Origin: source, From: f.from, Replay: true, Told: &told{Diverged: diverged}}}
	return h.open(r.Context(), id, s, agentbus.Payer(p.ID), e.Definition)
}

// branchConversation begins a conversation with the first turns of another.
func (h *Host) branchConversation(r *http.Request, e *agentbus.Execution, id agentbus.ExecutionID, f forking) error {
	if _, retold := readSpec(e); retold || string(e.ID) != string(e.Run) {
		return refuse(http.StatusConflict, "run_not_forkable", "branch the run that it is a part or a replay of")
	}
	turns := 0
	for ev, err := range h.cfg.Store.Events(r.Context(), e.ID, -1) {
		if err != nil {
			return err
		}
		if ev.Position >= f.from {
			break
		}
		if ev.Type == agentbus.EventNodeCompleted {
			turns++
		}
	}
	auth := agentbus.NewCredential(r.Header.Get("Authorization"))
	st := conversationOf(id, e.Conversation, auth, &asked{Configurable: f.overlay})
	st.From, st.Turns, st.Trace = e.Run, turns, traceOf(r.Header)
	return h.cfg.Conversations.Start(r.Context(), st)
}

// retell tells what the source told, and ends. What is stored already is not told
// twice, however often its driver dies.
func (d *driver) retell() error {
	for e, err := range d.cfg.Store.Events(d.reads, d.exec.ID, -1) {
		if err != nil {
			return err
		}
		d.fold.Add(e)
	}
	more := d.spec.Fork.Told.Diverged
	for e, err := range d.cfg.Store.Events(d.reads, d.spec.Fork.Source, -1) {
		if agentbus.CodeOf(err) == agentbus.CodeReplyExpired {
			return d.untold()
		}
		if err != nil {
			return err
		}
		if more != nil && e.Position == more.At && d.fold.next == more.At {
			d.diverge(&e, more.Kind)
		}
		again := d.rewritten(&e)
		if more != nil {
			again = d.shifted(&e, more.At)
		}
		if again.Position < d.fold.next {
			continue
		}
		if d.put(again); len(d.pending) >= copyBatch {
			if err := d.store(); err != nil {
				return err
			}
		}
	}
	source, _, err := d.cfg.Store.Execution(d.reads, d.spec.Fork.Source)
	if err != nil {
		return err
	}
	if source.Halt != nil && source.Halt.Final() {
		return d.halt(*source.Halt)
	}
	return d.halt(haltOf(&d.fold.snap))
}

// untold ends a replay that was cut before it had told everything, and whose source is
// gone by now: what it told is not the whole.
func (d *driver) untold() error {
	if d.fold.snap.Status.Terminal() { // but for its halt
		return d.halt(haltOf(&d.fold.snap))
	}
	if d.fold.next == 0 {
		d.emit(agentbus.EventRunStarted, "", nil, agentbus.RunStarted{WorkflowID: d.spec.Workflow, Transport: "rest"})
	}
	return d.failed(fail(string(agentbus.CodeReplyExpired), "the events of its source are gone").EventError, "")
}
