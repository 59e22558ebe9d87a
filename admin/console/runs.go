package console

import (
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// Runs is the content of the screen runs (U10).
type Runs struct {
	Columns []Column
	Filters Filters
	Rows    []RunRow
	Pager   Pager
	Empty   Empty
	Live    string // URL that tells of changes
}

// A RunRow is one run.
type RunRow struct {
	agentbus.RunSummary

	Kind  Kind
	Limit int  // depth at which calls are refused; 0: unknown
	Stop  *Ask // nil: it is over
}

// URL is where the run is shown.
func (r RunRow) URL() string { return "/console/runs/" + httpx.Segment(string(r.Run)) }

// Took is how long the run has taken.
func (r RunRow) Took() time.Duration {
	if r.Kind == KindRunning {
		return time.Since(r.Began).Truncate(time.Second) // it would differ at each look otherwise
	}
	return r.Last.Sub(r.Began)
}

// Why is why it stands as it does, where that is worth a line.
func (r RunRow) Why() string {
	switch {
	case r.Stopper != "":
		return "by " + r.Stopper
	case r.Halt != nil:
		return r.Halt.String()
	case r.Left && r.Kind == KindStopped:
		return "its caller left"
	}
	return ""
}
