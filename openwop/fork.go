package openwop

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
)

// A forkRequest asks for a fork (E50).
type forkRequest struct {
	Mode    string          `json:"mode"`
	FromSeq *int64          `json:"fromSeq"`
	Overlay json.RawMessage `json:"runOptionsOverlay"`
}

// forkRun serves POST /v1/runs/{id}:fork.
func (h *Host) forkRun(w http.ResponseWriter, r *http.Request, p agentbus.Principal, e *agentbus.Execution) error {
	var req forkRequest
	if err := h.body(r, &req); err != nil {
		return err
	}
	overlay, err := h.readOverlay(&req, h.redactFor(r))
	if err != nil {
		return err
	}
	n, err := h.cfg.Store.Appended(r.Context(), e.ID)
	if err != nil {
		return err
	}
	var from agentbus.Position
	switch {
	case req.FromSeq == nil && req.Mode == "branch":
		return invalid("a branch needs fromSeq")
	case req.FromSeq != nil && *req.FromSeq < 0:
		return invalid("fromSeq is negative")
	case req.FromSeq != nil && agentbus.Position(*req.FromSeq) > n:
		return refuse(http.StatusUnprocessableEntity, "validation_error", "fromSeq is past the end of the run, which has %d events", n)
	case req.FromSeq != nil:
		from = agentbus.Position(*req.FromSeq)
	}
	f, err := h.fold(r.Context(), e)
	if err != nil {
		return err
	}
	if !f.snap.Status.Terminal() && !f.snap.Status.Waiting() {
		return refuse(http.StatusConflict, "run_active", "the run is %s: fork it when it has ended, or waits", f.snap.Status)
	}
	if req.Mode == "branch" {
		overlay = laidOver(f.snap.Configurable, overlay)
	}
	s, ours := readSpec(e)
	if !ours || s.retells() {
		return h.forkConversation(w, r, p, e, &req, forking{from: from, overlay: overlay, ended: f.snap.Status.Terminal()})
	}
	s.Fork = &fork{Source: e.ID, Origin: e.ID, From: from, Replay: req.Mode == "replay"}
	if of, _ := readSpec(e); of.Fork != nil {
		s.Fork.Origin = of.Fork.Origin
	}
	if len(overlay) > 0 {
		s.Asked.Configurable = overlay
	}
	id := agentbus.ExecutionID(agentbus.NewRunID())
	if err := h.begin(r.Context(), id, s, agentbus.Payer(p.ID)); err != nil {
		return err
	}
	return forked(w, id, e.ID, from, req.Mode)
}

// forked answers with a fork.
func forked(w http.ResponseWriter, id, source agentbus.ExecutionID, from agentbus.Position, mode string) error {
	return answer(w, http.StatusCreated, map[string]any{
		"runId": id, "sourceRunId": source, "fromSeq": from, "mode": mode, "status": StatusRunning, "eventsUrl": "/v1/runs/" + string(id) + "/events",
	})
}

// laidOver is what a branch goes on under: the options of its source, with those of
// the overlay in their place. A member that is null there is as if it were not.
func laidOver(source, overlay json.RawMessage) json.RawMessage {
	if len(overlay) == 0 {
		return source
	}
	var all, over map[string]json.RawMessage
	_, _ = json.Unmarshal(source, &all), json.Unmarshal(overlay, &over) // objects, or nothing
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, over)
	maps.DeleteFunc(all, func(_ string, v json.RawMessage) bool { return string(v) == "null" })
	raw, _ := json.Marshal(all) // it came from JSON
	return raw
}

// readOverlay checks the mode, and returns the options of the overlay without
// secrets (E28).
func (h *Host) readOverlay(req *forkRequest, redact *eventlog.Redactor) (json.RawMessage, error) {
	var o struct {
		Configurable json.RawMessage `json:"configurable"`
	}
	if len(req.Overlay) > 0 && json.Unmarshal(req.Overlay, &o) != nil {
		return nil, invalid("runOptionsOverlay is no object")
	}
	empty := len(req.Overlay) == 0 || string(bytes.TrimSpace(req.Overlay)) == "{}" || string(bytes.TrimSpace(req.Overlay)) == "null"
	switch req.Mode {
	case "replay":
		if !empty {
			return nil, invalid("a replay has no overlay: its events are those of its source")
		}
		return nil, nil
	case "branch":
		return redact.JSON(o.Configurable), checkConfigurable(o.Configurable, h.cfg.Conformance)
	}
	return nil, invalid("mode is replay or branch")
}

// copied brings over what the fork shares with its source: the events before where
// it parts, and in a replay the others too, for what it does to be held to.
func (d *driver) copied() error {
	f := d.spec.Fork
	if d.fold.next >= f.From && !f.Replay {
		return nil
	}
	var tape []agentbus.Event
	for e, err := range d.cfg.Store.Events(d.reads, f.Source, -1) {
		if agentbus.CodeOf(err) == agentbus.CodeReplyExpired { // nobody can go on with it, and it can be cancelled
			d.fold.ending = cmp.Or(d.fold.ending, error(&nodeError{failure: fail(string(agentbus.CodeReplyExpired), "the events of its source are gone")}))
			return nil
		}
		if err != nil {
			return err
		}
		if !f.Replay && e.Position >= f.From {
			break
		}
		tape = append(tape, d.rewritten(&e))
	}
	for i := int(d.fold.next); i < len(tape) && agentbus.Position(i) < f.From; i++ {
		if d.put(tape[i]); len(d.pending) >= copyBatch {
			if err := d.store(); err != nil {
				return err
			}
		}
	}
	if f.Replay {
		d.tape = tape
	}
	return d.store()
}

// copyBatch is how many events are copied in one transaction.
const copyBatch = 256

// rewritten is an event of the source as it is in the fork: the ids of the run are
// its own, and the rest stays byte by byte (E52).
func (d *driver) rewritten(e *agentbus.Event) agentbus.Event { return d.shifted(e, math.MaxInt64) }

// shifted is rewritten where the fork has one event more, at a position.
func (d *driver) shifted(e *agentbus.Event, more agentbus.Position) agentbus.Event {
	moved := func(at agentbus.Position) agentbus.Position {
		if at >= more {
			at++
		}
		return at
	}
	source := []byte(strconv.Quote(string(d.spec.Fork.Source)))
	c := agentbus.Event{
		Position: moved(e.Position), At: time.Now().UTC(), Type: e.Type, Node: e.Node, Execution: d.exec.ID, Run: d.exec.Run, Turn: e.Turn,
		Data: bytes.ReplaceAll(e.Data, source, []byte(strconv.Quote(string(d.exec.ID)))),
	}
	if at, ok := strings.CutPrefix(string(e.Cause), "evt_"+string(d.spec.Fork.Source)+"_"); ok {
		if n, err := strconv.ParseInt(at, 10, 64); err == nil {
			c.Cause = agentbus.EventIDOf(d.exec.ID, moved(agentbus.Position(n)))
		}
	}
	return c
}

// splitKey splits the key of an interrupt into its node and number.
func splitKey(key string) (node string, n int) {
	i := strings.LastIndexByte(key, ':')
	if i < 0 {
		return key, 0
	}
	n, _ = strconv.Atoi(key[i+1:])
	return key[:i], n
}

// standing reports how a run that was just begun looks like, to its caller.
func (h *Host) standing(ctx context.Context, e *agentbus.Execution) Status {
	s, err := h.summary(ctx, e)
	if err != nil {
		return StatusPending
	}
	return s.Status
}
