package conversation

import "github.com/agentbus/agentbus"

// Memory is the journal of runs without one, for tests to stand around.
type Memory = memory

// NewMemory returns an empty one.
func NewMemory() *Memory { return newMemory() }

// Execution returns an execution as it stands.
func (m *memory) Execution(id agentbus.ExecutionID) (agentbus.Execution, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[id]
	if r == nil {
		return agentbus.Execution{}, false
	}
	return r.execution, true
}

// Resolve decides an interrupt, as a store does.
func (m *memory) Resolve(id agentbus.InterruptID, r agentbus.Resolution) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := m.interrupts[id]
	if !found || !i.Open() {
		return false
	}
	i.Resolution = &r
	m.interrupts[id] = i
	return true
}

// Waiting returns the interrupts that wait.
func (m *memory) Waiting() (all []agentbus.Interrupt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.interrupts {
		if i.Open() {
			all = append(all, i)
		}
	}
	return all
}
