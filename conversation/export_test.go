package conversation

// Memory is the journal of runs without one, for tests to stand around.
type Memory = memory

// NewMemory returns an empty one.
func NewMemory() *Memory { return newMemory() }
