package conversation

import "github.com/agentbus/agentbus"

// Memory is the journal of runs without one, for tests to stand around.
type Memory = memory

// NewMemory returns an empty one.
func NewMemory() *Memory { return newMemory() }

// Executions returns all executions as they stand.
func (m *memory) Executions() (all []agentbus.Execution) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		all = append(all, r.execution)
	}
	return all
}

// Answering returns the conversation that a backend is.
func Answering(b agentbus.Backend) (Conversation, bool) {
	n, ok := b.(nested)
	return n.config.Conversation, ok
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
