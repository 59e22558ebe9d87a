package openwop

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
)

// An activation is one time that a node is performed. A node type is a function
// that says its events in order; those that are in the log already are not said
// again, so that it can be performed from its beginning after a crash, after its
// interrupt was resolved, and in a fork.
type activation struct {
	*driver

	node  *Node
	agent *agentbus.AgentRef
	log   []agentbus.Event // of this activation, when it began before
	said  int              // so many of log were said again
	index int              // how often the node was performed before
	asked int              // how often it has asked before
}

// emit says an event of the node.
func (a *activation) emit(kind string, cause *emitted, v any) emitted {
	if a.said < len(a.log) && a.log[a.said].Type == kind {
		e := &a.log[a.said]
		a.said++
		return emitted{e.Position, e.Data}
	}
	return a.driver.emit(kind, a.node.ID, cause, v)
}

// ahead returns the event that comes next, of the log or of the source of a
// replay; nil: it has not happened.
func (a *activation) ahead() *agentbus.Event {
	if a.said < len(a.log) {
		return &a.log[a.said]
	}
	if rec := a.recorded(); rec != nil && (rec.Node == a.node.ID || stops(rec)) {
		return rec
	}
	return nil
}

// config reads the configuration of the node.
func (a *activation) config(v any) error {
	if len(a.node.Config) == 0 {
		return nil
	}
	if err := json.Unmarshal(a.node.Config, v); err != nil {
		return fail("invalid_config", "the configuration of node %s cannot be read", a.node.ID)
	}
	return nil
}

// variable reads a variable of the run into v, if there is one.
func (a *activation) variable(name string, v any) {
	_ = json.Unmarshal(a.fold.snap.Variables[name], v) // one of another type is none
}

// sleep waits, unless what comes behind it has happened.
func (a *activation) sleep(d time.Duration) error {
	if e := a.ahead(); e != nil {
		if stops(e) {
			return stopOf(e)
		}
		return nil
	}
	if err := a.store(); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
}

// A question is what an interrupt asks.
type question struct {
	kind, reason string
	data         any
	schema       string // that the answer must satisfy; "": any does
	low          *agentbus.LowConfidence
	ask          agentbus.Ask // as people see it elsewhere
}

// wait asks and returns the answer; a run that has none yet parks. Its key is the
// same in every fork, and asks once (E36).
func (a *activation) wait(q question) (json.RawMessage, error) {
	n := a.asked
	a.asked++
	key := a.node.ID + ":" + itoa(n)
	data, err := oneLine(q.data)
	if err != nil {
		return nil, fail("invalid_config", "what node %s asks is no JSON", a.node.ID)
	}
	p := agentbus.InterruptPayload{Kind: q.kind, Key: key, Data: data, ResumeSchema: json.RawMessage(q.schema)}
	a.emit(agentbus.EventWaitRequested, nil, p)
	s := agentbus.NodeSuspended{NodeID: a.node.ID, InterruptID: key, Kind: q.kind, Key: key, Reason: q.reason}
	if q.low != nil {
		s.AgentID, s.Threshold, s.Observed = q.low.AgentID, &q.low.Threshold, &q.low.Observed
	}
	a.emit(agentbus.EventNodeSuspended, nil, s)
	answer, err := a.answer(q, key, n)
	if err != nil {
		return nil, err
	}
	r := agentbus.NodeResumed{NodeID: a.node.ID, InterruptID: key, ResumeValue: answer}
	said := a.emit(agentbus.EventWaitResolved, nil, r)
	a.emit(agentbus.EventNodeResumed, nil, r)
	if got, ok := payload[agentbus.NodeResumed](&agentbus.Event{Data: said.data}); ok {
		answer = got.ResumeValue
	}
	return answer, nil
}

// answer returns what was decided, or parks.
func (a *activation) answer(q question, key string, n int) (json.RawMessage, error) {
	if e := a.ahead(); e != nil {
		if stops(e) {
			return nil, stopOf(e)
		}
		p, _ := payload[agentbus.NodeResumed](e)
		return p.ResumeValue, nil
	}
	id := interruptOf(a.exec.ID, a.node.ID, n)
	i, found, err := a.cfg.Store.Interrupt(a.ctx, id)
	if err != nil {
		return nil, err
	}
	if found && !i.Open() {
		return resumeValue(&i, key), nil
	}
	s := &suspension{id: id}
	if !found {
		ask := q.ask
		ask.Resume, _ = oneLine(agentbus.InterruptPayload{Kind: q.kind, Key: key, ResumeSchema: json.RawMessage(q.schema)})
		now := time.Now().UTC()
		s.raised = &agentbus.Interrupt{
			ID: id, Run: a.exec.Run, Execution: a.exec.ID, Root: a.exec.ID, Turn: agentbus.TurnID(a.node.ID), Payer: a.exec.Payer,
			Path: []agentbus.Speaker{agentbus.Speaker(a.node.ID)}, Ask: ask, Raised: now, Expires: now.Add(a.cfg.InterruptTimeout),
		}
	}
	return nil, s
}

// interruptOf is the id in the store of the n-th interrupt of a node.
func interruptOf(run agentbus.ExecutionID, node string, n int) agentbus.InterruptID {
	return agentbus.InterruptOf(run, agentbus.TurnID(node), n)
}

// resumeValue is the answer of an interrupt that was decided. One that was
// decided elsewhere than on this wire, or by nobody, is put into its words.
func resumeValue(i *agentbus.Interrupt, key string) json.RawMessage {
	r := i.Resolution
	if text := json.RawMessage(r.Text); len(text) > 0 && json.Valid(text) {
		return text
	}
	var asked agentbus.InterruptPayload
	_ = json.Unmarshal(i.Ask.Resume, &asked)
	var v any
	switch granted := r.Decision == agentbus.DecisionGranted; {
	case asked.Kind == "clarification" && granted:
		v = map[string]any{"answers": map[string]string{"q1": r.Text}}
	case asked.Kind == "clarification":
		v = map[string]any{"denied": true, "key": key}
	case granted && slices.Contains(i.Ask.Choices, r.Text):
		v = map[string]string{"action": r.Text}
	case granted:
		v = map[string]string{"action": "accept"}
	default:
		v = map[string]string{"action": "reject"}
	}
	out, _ := oneLine(v) // maps of strings
	return out
}
