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
