package execagent

import (
	"io"
	"iter"
	"time"

	"github.com/agentbus/agentbus"
)

// ReadLines reads JSON lines as a program's output, without a program.
func ReadLines(f Fields, out io.Reader) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		a := &Agent{config: Config{Output: OutputJSONL, Fields: f, MaxOutput: defaultMaxOutput, ReportCost: true}}
		same := func(s string) string { return s }
		r := a.newReader(&turn{hide: same, emit: func(c agentbus.Chunk) error {
			yield(c, nil)
			return nil
		}})
		if err := r.read(out); err != nil {
			yield(agentbus.Chunk{}, err)
			return
		}
		yield(r.last(""), nil)
	}
}

// Sweep removes old working directories, as the end of a turn does.
func (a *Agent) Sweep() {
	for _, old := range a.rooms.old(time.Now()) {
		removeAll(old)
	}
}

// Tag is in the names of the working directories of an agent.
func Tag(agent string) string { return tagOf(agent) }
