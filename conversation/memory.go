package conversation

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// memory is the journal of a run that was given none. It lasts as long as the
// run, shared with the conversations nested in it.
type memory struct {
	mu    sync.Mutex // guards runs and what they hold
	runs  map[agentbus.ExecutionID]*memoryRun
	first map[place]int // next free index inside a turn (P17)
	// interrupts wait as long as the run does: nobody can resolve them.
	interrupts map[agentbus.InterruptID]agentbus.Interrupt
}

type memoryRun struct {
	execution agentbus.Execution
	turns     []agentbus.Turn // from index execution.First
}

// place is a turn that executions serve.
type place struct {
	payer  agentbus.Payer
	run    agentbus.RunID
	path   string
	parent agentbus.TurnID
}

func newMemory() *memory {
	return &memory{runs: make(map[agentbus.ExecutionID]*memoryRun), first: make(map[place]int), interrupts: map[agentbus.InterruptID]agentbus.Interrupt{}}
}

// Open creates or finds an execution and claims it; see Runs.
func (m *memory) Open(_ context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[e.ID]
	if r == nil {
		if e.Parent != "" {
			e.First = m.first[placeOf(&e)]
		}
		r = &memoryRun{execution: e}
		m.runs[e.ID] = r
	}
	if r.execution.State == agentbus.RunDone {
		return r.execution, nil
	}
	if l := r.execution.Lease; l.Owner != "" && l.Owner != claim.Owner && l.Epoch != claim.TakeOver && time.Now().Before(l.Expires) {
		return r.execution, &agentbus.Error{Code: agentbus.CodeRunConflict, Message: "run " + string(e.ID) + " is being driven by " + l.Owner}
	}
	r.execution.State = agentbus.RunRunning
	r.execution.Lease = agentbus.Lease{Execution: e.ID, Owner: claim.Owner, Epoch: r.execution.Lease.Epoch + 1, Expires: time.Now().Add(claim.TTL)}
	return r.execution, nil
}

func placeOf(e *agentbus.Execution) place { return place{e.Payer, e.Run, e.Path, e.Parent} }

// held returns the run that is driven under an epoch.
func (m *memory) held(id agentbus.ExecutionID, epoch uint64) (*memoryRun, error) {
	r := m.runs[id]
	if r == nil || r.execution.Lease.Epoch != epoch {
		return nil, &agentbus.Error{Code: agentbus.CodeLeaseLost, Message: "run " + string(id) + " is driven by somebody else now"}
	}
	return r, nil
}

// Renew extends a lease; see Runs.
func (m *memory) Renew(_ context.Context, l agentbus.Lease, ttl time.Duration) (agentbus.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.held(l.Execution, l.Epoch)
	if err != nil {
		return l, err
	}
	r.execution.Lease.Expires = time.Now().Add(ttl)
	return r.execution.Lease, nil
}

// Halt stores why an execution stopped; see Runs.
func (m *memory) Halt(_ context.Context, l agentbus.Lease, h agentbus.Halt, _ ...agentbus.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.held(l.Execution, l.Epoch)
	if err != nil {
		return err
	}
	if h.Wait != nil {
		for _, t := range h.Wait.Asked {
			if err := m.finish(r, t); err != nil {
				return err
			}
			if t.Interrupt != nil {
				m.interrupts[t.Interrupt.ID] = *t.Interrupt
			}
		}
		h.Wait = &agentbus.Wait{Interrupts: h.Wait.Interrupts}
	}
	r.execution.Halt, r.execution.State = &h, agentbus.RunPaused
	if h.Final() {
		r.execution.State = agentbus.RunDone
	}
	r.execution.Lease.Owner, r.execution.Lease.Expires = "", time.Time{}
	return nil
}

// Begin records intents; see Journal.
func (m *memory) Begin(_ context.Context, turns []agentbus.Turn, _ ...agentbus.Event) ([]agentbus.Turn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.held(turns[0].Execution, turns[0].Epoch)
	if err != nil {
		return nil, err
	}
	for i := range turns {
		if r.mismatches(&turns[i]) {
			return nil, errMismatch(&turns[i])
		}
	}
	begun := make([]agentbus.Turn, len(turns))
	for i := range turns {
		begun[i], _ = m.begin(r, turns[i]) // it matches
	}
	return begun, nil
}

// mismatches reports whether r knows t as another turn.
func (r *memoryRun) mismatches(t *agentbus.Turn) bool {
	at := t.Index - r.execution.First
	if at >= len(r.turns) || r.turns[at].State == "" {
		return false
	}
	return r.turns[at].Digest != t.Digest || r.turns[at].ID != t.ID
}

func errMismatch(t *agentbus.Turn) error {
	return &agentbus.Error{Code: agentbus.CodeTurnMismatch, Message: "turn " + string(t.ID) + " was begun with another request"}
}

func (m *memory) begin(r *memoryRun, t agentbus.Turn) (agentbus.Turn, error) {
	if r.mismatches(&t) {
		return t, errMismatch(&t)
	}
	at := t.Index - r.execution.First
	if at >= len(r.turns) { // turns side by side are begun in any order
		r.turns = append(r.turns, make([]agentbus.Turn, at+1-len(r.turns))...)
	}
	if r.turns[at].State == "" {
		r.turns[at] = t
		if r.execution.Parent != "" {
			m.first[placeOf(&r.execution)] = max(m.first[placeOf(&r.execution)], t.Index+1)
		}
		return t, nil
	}
	stored := &r.turns[at]
	if stored.State != agentbus.TurnDone {
		stored.State, stored.Epoch = agentbus.TurnPending, t.Epoch
		if askOf(stored) == nil {
			stored.Error = nil
		}
	}
	return *stored, nil
}

// Finish stores what became of a turn; see Journal.
func (m *memory) Finish(_ context.Context, done agentbus.Turn, next *agentbus.Turn, _ ...agentbus.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.held(done.Execution, done.Epoch)
	if err != nil {
		return err
	}
	if err = m.finish(r, done); err == nil && next != nil {
		_, err = m.begin(r, *next)
	}
	return err
}

func (m *memory) finish(r *memoryRun, done agentbus.Turn) error {
	stored := &r.turns[done.Index-r.execution.First]
	if stored.State != agentbus.TurnPending || stored.Epoch != done.Epoch {
		return &agentbus.Error{Code: agentbus.CodeLeaseLost, Message: "turn " + string(done.ID) + " was finished by somebody else"}
	}
	*stored = done
	return nil
}

// AppendEvents does nothing: events last no longer than the run; see Runs.
func (m *memory) AppendEvents(context.Context, agentbus.Lease, ...agentbus.Event) (agentbus.Position, error) {
	return 0, nil
}

// Interrupt returns an interrupt; see Runs.
func (m *memory) Interrupt(_ context.Context, id agentbus.InterruptID) (agentbus.Interrupt, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := m.interrupts[id]
	return i, found, nil
}

// Turns yields the turns so far; see Journal.
func (m *memory) Turns(_ context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	var turns []agentbus.Turn
	if r := m.runs[id]; r != nil {
		turns = slices.DeleteFunc(slices.Clone(r.turns), func(t agentbus.Turn) bool { return t.State == "" })
	}
	return func(yield func(agentbus.Turn, error) bool) {
		for _, t := range turns {
			if !yield(t, nil) {
				return
			}
		}
	}
}
