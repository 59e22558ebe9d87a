package console

import (
	"net/url"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
)

// GraphPage is the content of the screen graph (U12).
type GraphPage struct {
	Graph

	Drawing Drawing
	Filters Filters
	Columns []Column // of its edges
	Empty   Empty
}

// Runs is where the runs of this graph are listed in which one called another. Of
// who calls, the filters of runs know payers alone.
func (g GraphPage) Runs(from, to string) string {
	q := callsOf(to)
	if at := slices.IndexFunc(g.Nodes, func(n Node) bool { return n.Name == from }); at >= 0 && g.Nodes[at].Payer != "" {
		q.Set("payer", string(g.Nodes[at].Payer))
	}
	return g.runs(q)
}

// RunsOf is where the runs of a node are listed; "" when no filter of runs tells
// them.
func (g GraphPage) RunsOf(n Node) string {
	switch {
	case n.Payer != "":
		return g.runs(url.Values{"payer": {string(n.Payer)}})
	case n.Kind == KindCaller:
		return ""
	}
	return g.runs(callsOf(n.Name))
}

// callsOf finds the runs in which a node was called. One that is no agent refuses.
func callsOf(name string) url.Values {
	if name == UnknownAgents {
		return url.Values{"standing": {string(agentbus.StandingRefused)}}
	}
	return url.Values{"agent": {name}}
}

// runs is the list of runs that pass q and are looked at here.
func (g GraphPage) runs(q url.Values) string {
	if g.Run != "" {
		q.Set("run", string(g.Run))
	} else {
		q.Set("active_since", g.Since.Truncate(time.Second).Format(time.RFC3339))
	}
	return "/console/runs?" + q.Encode()
}

// PayersPage is the content of the screen payers (U13).
type PayersPage struct {
	Rows    []Payer
	Filters Filters
	Columns []Column
	Pager   Pager
	Verify  Verify
	Empty   Empty
}

// Verify is the button that verifies the ledger, and what it found.
type Verify struct {
	CSRF    string
	Payer   agentbus.Payer // whose page it stands on; "": that of all
	Verdict *agentbus.LedgerVerdict
}

// PayerPage is the content of the screen payer (U13).
type PayerPage struct {
	PayerDetail

	Head    string // hash of its last entry, in hex
	Entries int64
	Verify  Verify
	Parts   []Part

	CapColumns, StaleColumns []Column

	StaleBound bool // there may be more: these are the oldest
}

// A Part is a payer's spending by agent, run or day.
type Part struct {
	Title   string
	Name    string // of its order, in the URL
	Bound   string // which of more these are; "": they are all
	Link    string // what leads to one of them, before its name; "": nothing does
	Short   bool   // they are ids
	Most    agentbus.Micros
	Columns []Column
	Rows    []agentbus.Spending
}

// Share returns how much of the most a is, in hundredths.
func (p Part) Share(a agentbus.Micros) int { return share(a, p.Most) }

// share returns a of whole in hundredths, from 0 to 100.
func share(a, whole agentbus.Micros) int {
	if whole <= 0 || a <= 0 {
		return 0
	}
	return int(min(100, float64(a)/float64(whole)*100))
}

// SettledShare is how much of the limit is settled, in hundredths.
func (c Cap) SettledShare() int { return share(c.Settled, c.Limit) }

// ReservedShare is how much of the limit is reserved, in hundredths.
func (c Cap) ReservedShare() int { return min(share(c.Reserved, c.Limit), 100-c.SettledShare()) }

// Kind says how near the limit is.
func (c Cap) Kind() Kind {
	switch {
	case c.Remaining <= 0:
		return KindRefused
	case !c.Reached.IsZero():
		return KindWaiting
	}
	return ""
}

// AgentRow is an agent with its record (U14).
type AgentRow struct {
	Agent
	Record

	CSRF string
}

// Where is where the agent is, in one line.
func (a AgentRow) Where() string {
	switch {
	case len(a.URLs) > 1:
		return a.URLs[0].URL + " and more"
	case len(a.URLs) == 1:
		return a.URLs[0].URL
	case len(a.Command) > 0:
		return a.Command[0]
	}
	return "in the bus"
}

// Standing is how the agent stands, and Word what is said of it.
func (a AgentRow) Standing() Kind {
	switch a.Word() {
	case "drained":
		return KindPaused
	case "ejected", "breaker open":
		return KindFailed
	case "probing", "busy":
		return KindWaiting
	}
	return KindDone
}

// Word is how the agent stands, in a word or two.
func (a AgentRow) Word() string {
	out := 0
	for _, u := range a.URLs {
		if u.Health == HealthEjected {
			out++
		}
	}
	word := "in service"
	switch {
	case a.Drained != nil:
		return "drained"
	case out > 0 && out == len(a.URLs):
		return "ejected"
	case a.Waiting > 0:
		word = "busy"
	case out > 0:
		word = "probing"
	}
	for _, b := range a.Breakers {
		if b.State == "open" {
			return "breaker open"
		}
	}
	return word
}

// Failed is how many of its calls went wrong.
func (a AgentRow) Failed() (n int) {
	for _, e := range a.Errors {
		n += e.Count
	}
	return n
}

// AgentsPage is the content of the screen agents (U14).
type AgentsPage struct {
	Rows    []AgentRow
	Columns []Column
	Partial bool
	Live    string
	Empty   Empty
}

// AgentPage is the content of the screen agent (U14).
type AgentPage struct {
	AgentRow

	Live    string
	Probed  bool // its probes are below
	Probes  []Probe
	Drain   Ask
	Actions []agentbus.Action
}

// InboxPage is the content of the screen inbox (U15).
type InboxPage struct {
	Open    []InterruptCard
	Decided []InterruptCard
	Remarks []Remark
	Actions []agentbus.Action
	Waiting int  // that were read
	More    bool // there are more that wait
	Filters Filters
	Pager   Pager // of those that wait
	Live    string
	Empty   Empty

	RemarkColumns, DecidedColumns []Column

	RemarksOf    int  // remarks, with those that are not shown
	DecidedBound bool // there may be more: these are the last
}

// An InterruptCard is an interrupt as somebody decides it.
type InterruptCard struct {
	agentbus.Interrupt

	Action string // URL of its form
	CSRF   string
	Kind   Kind
	Asks   string          // what, in a word
	Way    []string        // who asks, from the root to the leaf
	Facts  []Fact          // amount, payee, tool …
	After  string          // what happens when the time is up
	Cost   agentbus.Micros // of the run, so far
	Price  string          // cost if approved, where the ask says
	// Estimate is what a turn of who asks costs on average; 0: that is not known.
	Estimate agentbus.Micros
	Least    agentbus.Micros // its price of a call; 0: that is not known
	Answers  bool            // it is answered in words
	Choices  []string
	Chosen   bool // it was chosen by its link
}

// A Fact is a name and a value that an agent said: text.
type Fact struct{ Name, Value string }

// Expired reports whether the time to decide is up.
func (c InterruptCard) Expired() bool { return !c.Expires.IsZero() && !time.Now().Before(c.Expires) }

// Who decided, in words.
func (c InterruptCard) Who() string {
	switch {
	case c.Resolution == nil:
		return ""
	case c.Resolution.By == "":
		return "nobody: the time was up"
	}
	return c.Resolution.By
}
