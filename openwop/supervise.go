package openwop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/agentbus/agentbus"
)

// A supervisor is the configuration of one (E71).
type supervisor struct {
	MockDecisions       []agentbus.OrchestratorDecision `json:"mockDecisions"`
	MockDispatchPlan    []agentbus.OrchestratorDecision `json:"mockDispatchPlan"`
	MockConfidence      *float64                        `json:"mockConfidence"`
	MockPendingDecision *agentbus.OrchestratorDecision  `json:"mockPendingDecision"`
	AskUserRouting      string                          `json:"askUserRouting"`
}

// decision is what the supervisor decides the n-th time: its plan, then the end.
func (c *supervisor) decision(n int) agentbus.OrchestratorDecision {
	plan := c.MockDecisions
	switch {
	case len(plan) > 0:
	case len(c.MockDispatchPlan) > 0:
		plan = c.MockDispatchPlan
	case c.MockPendingDecision != nil:
		plan = []agentbus.OrchestratorDecision{*c.MockPendingDecision}
	default:
		plan = []agentbus.OrchestratorDecision{{Kind: "next-worker", NextWorkerIDs: []string{"conformance-noop"}}}
	}
	if n < len(plan) {
		return plan[n]
	}
	return agentbus.OrchestratorDecision{Kind: "terminate", Reason: "plan-done"}
}

// valid reports whether d is closed as E40 says.
func valid(d *agentbus.OrchestratorDecision) bool {
	switch d.Kind {
	case "next-worker":
		return len(d.NextWorkerIDs) > 0 && d.Prompt == "" && d.Reason == ""
	case "ask-user":
		return d.Prompt != "" && d.NextWorkerIDs == nil && d.Reason == "" && d.Confidence == nil
	case "terminate":
		return d.NextWorkerIDs == nil && d.Prompt == ""
	}
	return false
}

// supervise decides who works next. A decision of low confidence is held until
// somebody ratifies it: nobody reads it before (E31).
func supervise(a *activation) (json.RawMessage, error) {
	var c supervisor
	if err := a.config(&c); err != nil {
		return nil, err
	}
	d := c.decision(a.index)
	if a.index == 0 && c.MockConfidence != nil {
		held, _ := oneLine(d) // strings and numbers
		ratified, err := a.escalate(a.agent.AgentID, c.MockConfidence, held)
		if err != nil {
			return nil, err
		}
		if ratified != nil {
			if d = (agentbus.OrchestratorDecision{}); json.Unmarshal(ratified, &d) != nil {
				return nil, fail("invalid_decision", "the ratified decision cannot be read")
			}
		}
	}
	if !valid(&d) {
		return nil, fail("invalid_decision", "node %s decided %q, which is no decision", a.node.ID, d.Kind)
	}
	a.emit(agentbus.EventOrchestratorDecided, nil, agentbus.OrchestratorDecided{AgentID: a.agent.AgentID, Decision: d})
	if err := a.store(); err != nil { // before it takes effect (CO-1)
		return nil, err
	}
	switch d.Kind {
	case "terminate":
		return nil, errTerminate
	case "ask-user":
		return nil, a.askUser(c.AskUserRouting, d.Prompt)
	}
	return nil, nil
}

// askUser asks what the supervisor wants to know (E40).
func (a *activation) askUser(routing, prompt string) error {
	q := question{
		kind: "conversation.exchange", reason: "conversation-input",
		data: map[string]any{"conversationId": a.conversation(a.asked), "prompt": prompt, "turnIndex": 0},
		ask:  agentbus.Ask{Kind: agentbus.AskClarification, Prompt: prompt},
	}
	if routing == "clarification" {
		q.kind, q.reason, q.data = "clarification", "clarification", clarification{[]questionData{{"q1", prompt}}}
	}
	_, err := a.wait(q)
	return err
}

// conversation is the id of the n-th conversation of the node: the same in every
// fork (E45).
func (a *activation) conversation(n int) string {
	origin := a.exec.ID
	if a.spec.Fork != nil {
		origin = a.spec.Fork.Origin
	}
	return agentbus.ConversationID(origin, a.node.ID, n)
}

// A dispatcher is the configuration of a dispatch (E41).
type dispatcher struct {
	FanOutPolicy string                       `json:"fanOutPolicy"`
	IterationCap int                          `json:"iterationCap"`
	Inputs       map[string]string            `json:"inputMapping"`
	Outputs      map[string]string            `json:"outputMapping"`
	InputsOf     map[string]map[string]string `json:"perWorkerInputMappings"`
	OutputsOf    map[string]map[string]string `json:"perWorkerOutputMappings"`
}

// dispatch runs the workers that the supervisor chose, one behind the other, each
// as a run of its own.
func dispatch(a *activation) (json.RawMessage, error) {
	var c dispatcher
	if err := a.config(&c); err != nil {
		return nil, err
	}
	if c.IterationCap > 0 && a.index >= c.IterationCap {
		return nil, breachOf(agentbus.CapBreached{Kind: "loop-iterations", Limit: float64(c.IterationCap), Observed: float64(a.index + 1), NodeID: a.node.ID})
	}
	decided := a.fold.decided
	if decided == nil || decided.Decision.Kind != "next-worker" {
		return nil, nil
	}
	if len(decided.Decision.NextWorkerIDs) > 1 && c.FanOutPolicy == "reject" {
		return nil, fail("fan_out_rejected", "it dispatches one worker at a time")
	}
	cause := emitted{at: a.fold.decidedAt()}
	if err := a.floor(&decided.Decision, &cause); err != nil {
		return nil, err
	}
	for i, worker := range decided.Decision.NextWorkerIDs {
		if err := a.work(&c, worker, i, cause); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// floor asks for an approval of a decision whose own confidence is below the floor
// (E43).
func (a *activation) floor(d *agentbus.OrchestratorDecision, cause *emitted) error {
	if d.Confidence == nil || *d.Confidence >= confidenceFloor {
		return nil
	}
	worker := d.NextWorkerIDs[0]
	a.emit(agentbus.EventChainEscalated, cause, agentbus.ChainEscalated{
		Confidence: *d.Confidence, Floor: confidenceFloor, EscalationKind: "escalate", ParentRunID: a.exec.ID, WorkerID: worker,
	})
	_, err := a.askApproval("Dispatch "+worker+" at a low confidence", "dispatch", d, []string{"accept", "reject"})
	return err
}

// work runs one worker, and takes what it made.
func (a *activation) work(c *dispatcher, worker string, i int, cause emitted) error {
	step := agentbus.WorkflowChain{Phase: "dispatch.began", WorkerID: worker, ParentRunID: a.exec.ID}
	last := a.emit(agentbus.EventWorkflowChain, &cause, step)
	id := a.childID(worker, i)
	if a.cfg.workflow(worker) == nil {
		step.Phase, step.Error = "dispatch.failed", &agentbus.EventError{Code: "workflow_not_found", Message: "there is no workflow " + worker}
		a.emit(agentbus.EventWorkflowChain, &last, step)
		return &failure{*step.Error}
	}
	if a.ahead() == nil {
		if err := a.store(); err != nil {
			return err
		}
		if err := a.begin(a.ctx, id, spec{Workflow: worker, Asked: asked{Inputs: a.mapped(inputsOf(c, worker)), Parent: a.exec.ID}}, a.exec.Payer); err != nil {
			return err
		}
	}
	a.emit(agentbus.EventNodeDispatched, nil, agentbus.NodeDispatched{ChildRunID: string(id), ChildWorkflowID: worker})
	step.Phase, step.ChildRunID = "dispatch.succeeded", id
	last = a.emit(agentbus.EventWorkflowChain, &last, step)
	status, made, err := a.child(id)
	if err != nil {
		return err
	}
	step.Phase = "child." + string(status)
	last = a.emit(agentbus.EventWorkflowChain, &last, step)
	outputs := c.Outputs
	if of := c.OutputsOf[worker]; of != nil {
		outputs = of
	}
	if status != StatusCompleted || len(outputs) == 0 {
		return nil
	}
	step.Phase = "output.harvested"
	step.HarvestedKeys = slices.Sorted(maps.Keys(outputs))
	for _, parent := range step.HarvestedKeys {
		next := made[outputs[parent]]
		if next == nil {
			next = json.RawMessage("null")
		}
		a.emit(agentbus.EventVariableChanged, nil, agentbus.VariableChanged{Name: parent, Next: next, NodeID: a.node.ID})
	}
	a.emit(agentbus.EventWorkflowChain, &last, step)
	return nil
}

// childID is the id of the run of a worker: that of the events there are, else one
// that follows from its place, so that a crash begins no second one.
func (a *activation) childID(worker string, i int) agentbus.ExecutionID {
	if e := a.ahead(); e != nil {
		if p, ok := payload[agentbus.NodeDispatched](e); ok && p.ChildRunID != "" {
			return agentbus.ExecutionID(p.ChildRunID)
		}
	}
	sum := sha256.Sum256([]byte(string(a.exec.ID) + "\x00" + a.node.ID + "\x00" + itoa(a.index) + "\x00" + itoa(i) + "\x00" + worker))
	return agentbus.ExecutionID("run_" + hex.EncodeToString(sum[:16]))
}

func inputsOf(c *dispatcher, worker string) map[string]string {
	if of := c.InputsOf[worker]; of != nil {
		return of
	}
	return c.Inputs
}

// mapped are the inputs of a worker, of the variables of this run.
func (a *activation) mapped(inputs map[string]string) json.RawMessage {
	out := map[string]json.RawMessage{}
	for child, parent := range inputs {
		if v := a.fold.snap.Variables[parent]; v != nil {
			out[child] = v
		}
	}
	b, _ := oneLine(out) // of JSON
	return b
}

// child waits for the end of a worker's run, and returns how it ended and its
// variables. What happened before is not waited for.
func (a *activation) child(id agentbus.ExecutionID) (Status, map[string]json.RawMessage, error) {
	if e := a.ahead(); e != nil {
		if stops(e) {
			return "", nil, stopOf(e)
		}
		p, _ := payload[agentbus.WorkflowChain](e)
		if a.tape != nil {
			return Status(p.Phase[len("child."):]), nil, nil
		}
	}
	if err := a.store(); err != nil {
		return "", nil, err
	}
	f, err := a.await(a.ctx, id)
	if err != nil {
		if errors.Is(context.Cause(a.ctx), errCancelled) || errors.Is(context.Cause(a.ctx), errTimeout) {
			_ = a.cancelChild(context.WithoutCancel(a.ctx), id)
			return "", nil, context.Cause(a.ctx)
		}
		return "", nil, err
	}
	return f.snap.Status, f.snap.Variables, nil
}
