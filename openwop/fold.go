package openwop

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/agentbus/agentbus"
)

// A Fold is the state of a run, of its events from the first on. It is a pure
// function of them: the same events make the same snapshot, byte for byte.
type Fold struct {
	snap     Snapshot
	next     agentbus.Position
	channels map[string]*channel

	began, done map[string]int                       // activations of nodes
	asked       map[string]int                       // interrupts of nodes
	base        int                                  // those that the active node had asked before it was begun
	active      string                               // the node that was begun last and is not done
	log         []agentbus.Event                     // of its activation
	decided     *agentbus.OrchestratorDecided        // last
	decidedPos  agentbus.Position                    // of that
	open        map[string]suspended                 // interrupts that wait, by key
	questions   map[string]agentbus.InterruptPayload // of those, what they ask
	ever        map[string]bool                      // nodes that ever asked
	told        map[string]bool                      // nodes whose agent has told a decision since they were begun last
	inputs      map[string]json.RawMessage
	overlay     json.RawMessage // of a branch: the options in place of those of run.started
	ending      error           // what ends the run, when that stands in its events and the end does not
}

// NewFold returns the state of a run without events.
func NewFold(id agentbus.ExecutionID, workflow string) *Fold {
	return &Fold{
		snap:     Snapshot{RunID: id, WorkflowID: workflow, Status: StatusPending},
		channels: map[string]*channel{}, began: map[string]int{}, done: map[string]int{}, asked: map[string]int{},
		open: map[string]suspended{}, questions: map[string]agentbus.InterruptPayload{}, ever: map[string]bool{}, told: map[string]bool{},
	}
}

// foldOf returns the state of a run without events, under the options that it goes on
// with when it is a branch: its first event tells those of its source.
func foldOf(e *agentbus.Execution) *Fold {
	f := NewFold(e.ID, e.Conversation)
	if s, ok := readSpec(e); ok && s.Fork != nil {
		f.overlay = s.Asked.Configurable
		f.snap.Configurable = f.overlay
	}
	return f
}

// State returns the snapshot. What it refers to is the fold's own.
func (f *Fold) State() *Snapshot {
	f.snap.Channels = nil
	for name, c := range f.channels {
		if f.snap.Channels == nil {
			f.snap.Channels = map[string]json.RawMessage{}
		}
		f.snap.Channels[name] = c.json()
	}
	return &f.snap
}

// Snapshot returns it as one line of JSON.
func (f *Fold) Snapshot() ([]byte, error) { return oneLine(f.State()) }

// oneLine is the JSON of v as it stands in an answer.
func oneLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Add folds the next event. One that was folded is not folded again.
func (f *Fold) Add(e agentbus.Event) {
	if e.Position < f.next {
		return
	}
	f.next = e.Position + 1
	if f.active != "" && e.Node == f.active {
		f.log = append(f.log, e)
	}
	switch e.Type {
	case agentbus.EventRunStarted:
		f.started(&e)
	case agentbus.EventRunCompleted, agentbus.EventRunFailed, agentbus.EventRunCancelled:
		f.ended(&e)
	case agentbus.EventRunPaused:
		f.snap.Status = StatusPaused
	case agentbus.EventRunResumed:
		f.snap.Status = StatusRunning
	case agentbus.EventChannelWritten:
		f.written(&e)
	case agentbus.EventVariableChanged:
		if v, ok := payload[agentbus.VariableChanged](&e); ok {
			f.setVariable(v.Name, v.Next)
		}
	case agentbus.EventProviderUsage:
		f.used(&e)
	case agentbus.EventOrchestratorDecided:
		if v, ok := payload[agentbus.OrchestratorDecided](&e); ok {
			f.decided, f.decidedPos = &v, e.Position
			if f.snap.RunOrchestrator == nil {
				f.snap.RunOrchestrator = &agentbus.AgentRef{AgentID: v.AgentID}
			}
		}
	case agentbus.EventCapBreached:
		f.ends(&e)
	case agentbus.EventAgentDecided:
		f.told[e.Node] = true
	case agentbus.EventWaitRequested:
		if q, ok := payload[agentbus.InterruptPayload](&e); ok {
			f.questions[q.Key] = q
		}
	case agentbus.EventRunWaiting:
		f.waits()
	default:
		f.addNode(&e)
	}
}

// ends notes what the run ends with, however soon its driver dies behind it.
func (f *Fold) ends(e *agentbus.Event) {
	switch e.Type {
	case agentbus.EventNodeFailed:
		p, _ := payload[agentbus.NodeFailed](e)
		f.ending = &nodeError{p.NodeID, &failure{p.Error}}
	case agentbus.EventNodeCancelled:
		p, _ := payload[agentbus.NodeCancelled](e)
		f.ending = &cancellation{reason: p.Reason}
	case agentbus.EventCapBreached:
		p, _ := payload[agentbus.CapBreached](e)
		f.ending = breachOf(p)
	case agentbus.EventNodeCompleted:
		if f.decided != nil && f.decided.Decision.Kind == "terminate" {
			f.ending = errTerminate
		}
	}
}

// payload reads the payload of e.
func payload[T any](e *agentbus.Event) (v T, ok bool) {
	return v, json.Unmarshal(e.Data, &v) == nil
}

func (f *Fold) started(e *agentbus.Event) {
	p, _ := payload[agentbus.RunStarted](e)
	at := e.At.UTC()
	f.snap.Status, f.snap.StartedAt = StatusRunning, &at
	f.snap.Tags, f.snap.Metadata, f.snap.Configurable = p.Tags, p.Metadata, p.Configurable
	if len(f.overlay) > 0 {
		f.snap.Configurable = f.overlay
	}
	if p.WorkflowID != "" {
		f.snap.WorkflowID = p.WorkflowID
	}
	_ = json.Unmarshal(p.Inputs, &f.inputs)
	for name, value := range f.inputs {
		f.setVariable(name, value)
	}
}

func (f *Fold) setVariable(name string, value json.RawMessage) {
	if f.snap.Variables == nil {
		f.snap.Variables = map[string]json.RawMessage{}
	}
	f.snap.Variables[name] = value
}

func (f *Fold) ended(e *agentbus.Event) {
	at := e.At.UTC()
	f.snap.CompletedAt, f.snap.CurrentNodeID = &at, ""
	clear(f.open)
	clear(f.questions)
	switch e.Type {
	case agentbus.EventRunCompleted:
		f.snap.Status = StatusCompleted
	case agentbus.EventRunCancelled:
		f.snap.Status = StatusCancelled
	case agentbus.EventRunFailed:
		p, _ := payload[agentbus.RunFailed](e)
		f.snap.Status = StatusFailed
		f.snap.Error = &SnapshotError{Code: p.Error.Code, Message: p.Error.Message, Details: p.Error.Details}
	}
}

func (f *Fold) written(e *agentbus.Event) {
	w, ok := payload[agentbus.ChannelWritten](e)
	if !ok {
		return
	}
	if f.channels[w.Channel] == nil {
		f.channels[w.Channel] = &channel{}
	}
	f.channels[w.Channel].write(w.Reducer, w.Value)
}

func (f *Fold) used(e *agentbus.Event) {
	u, ok := payload[agentbus.ProviderUsage](e)
	if !ok {
		return
	}
	if f.snap.Metrics == nil {
		f.snap.Metrics = &Metrics{}
	}
	c := &f.snap.Metrics.Cost
	c.Tokens.Input, c.Tokens.Output = c.Tokens.Input+u.InputTokens, c.Tokens.Output+u.OutputTokens
	if c.Model, c.Provider = u.Model, u.Provider; u.CostEstimateUSD != nil {
		c.USD += *u.CostEstimateUSD
	}
}

// addNode folds what happened to a node.
func (f *Fold) addNode(e *agentbus.Event) {
	p, _ := payload[struct {
		NodeID string             `json:"nodeId"`
		TypeID string             `json:"typeId"`
		Kind   string             `json:"kind"`
		Key    string             `json:"key"`
		Agent  *agentbus.AgentRef `json:"agent"`
		ID     string             `json:"interruptId"`
	}](e)
	node := p.NodeID
	if node == "" {
		return
	}
	set := func(status string) {
		if f.snap.NodeStates == nil {
			f.snap.NodeStates = map[string]NodeState{}
		}
		f.snap.NodeStates[node] = NodeState{Status: status, Started: f.began[node]}
	}
	switch e.Type {
	case agentbus.EventNodeStarted:
		f.began[node]++
		delete(f.told, node)
		f.active, f.log, f.base = node, []agentbus.Event{*e}, f.asked[node]
		if p.Agent != nil {
			f.snap.Agent = p.Agent
		}
		set("running")
		if p.TypeID == typeSupervisor && f.snap.RunOrchestrator == nil {
			f.snap.RunOrchestrator = p.Agent
		}
	case agentbus.EventNodeCompleted, agentbus.EventNodeFailed, agentbus.EventNodeCancelled:
		f.ends(e)
		if f.done[node]++; f.active == node {
			f.active, f.log = "", nil
		}
		set(map[string]string{agentbus.EventNodeCompleted: "completed", agentbus.EventNodeFailed: "failed"}[e.Type])
		if e.Type == agentbus.EventNodeCancelled {
			set("cancelled")
		}
	case agentbus.EventNodeSuspended:
		s, _ := payload[suspended](e)
		f.asked[node]++
		f.open[s.Key], f.ever[node] = s, true
		f.waitsFor(&s)
		set("suspended")
	case agentbus.EventNodeResumed:
		delete(f.open, p.ID)
		delete(f.questions, p.ID)
		f.snap.Status, f.snap.CurrentNodeID = StatusRunning, ""
		set("running")
	}
}

// waits notes that the run is parked on interrupts that were asked before: of the
// branches of a conversation one may have gone on, and the others wait still.
func (f *Fold) waits() {
	if s, waits := f.waiting("", ""); waits {
		f.waitsFor(&s)
	}
}

// waiting returns the first of what a node waits for, or of what any does; key, unless
// "", is which one. The credential of the payer goes first: nothing goes on without.
func (f *Fold) waiting(node, key string) (first suspended, found bool) {
	for _, k := range slices.Sorted(maps.Keys(f.open)) {
		s := f.open[k]
		if node != "" && s.NodeID != node || key != "" && k != key {
			continue
		}
		if !found || s.lacks() {
			first, found = s, true
		}
	}
	return first, found
}

// A suspended node waits for interrupts: those that a turn of a conversation names,
// else the one that its key names.
type suspended struct {
	agentbus.NodeSuspended

	Bus struct {
		Ask struct {
			Interrupts []agentbus.InterruptID `json:"interrupts"`
		} `json:"ask"`
	} `json:"agentbus"`
}

// lacks reports whether it is the credential of the payer that a run waits for.
func (s *suspended) lacks() bool { return s.Reason == agentbus.ReasonCredential }

// interrupt returns the id in the store of what a node of a run waits for.
func (s *suspended) interrupt(run agentbus.ExecutionID) agentbus.InterruptID {
	if of := s.Bus.Ask.Interrupts; len(of) > 0 {
		return of[0]
	}
	_, n := splitKey(s.Key)
	return interruptOf(run, s.NodeID, n)
}

func (f *Fold) waitsFor(s *suspended) {
	f.snap.Status, f.snap.CurrentNodeID = statusOf(s.Kind), s.NodeID
}

// statusOf is how a run stands that waits for an interrupt of a kind (E36).
func statusOf(kind string) Status {
	switch kind {
	case "clarification", "custom":
		return StatusWaitingInput
	case "external-event":
		return StatusWaitingExternal
	}
	return StatusWaitingApproval
}

// executions is how many nodes were begun (E35).
func (f *Fold) executions() (n int) {
	for v := range maps.Values(f.began) {
		n += v
	}
	return n
}

// decidedAt is where the last decision of the supervisor stands.
func (f *Fold) decidedAt() agentbus.Position { return f.decidedPos }
