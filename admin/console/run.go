package console

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// Run is the content of the screen run (U11).
type Run struct {
	RunRow

	Cap      agentbus.Micros // that it may cost; 0: any amount
	Live     string          // URL that tells of changes
	Findings []Finding
	Commands []Command
	Timeline Timeline
	Lines    []Line
	Pager    Pager
	Chosen   *Inspector // nil: no row is chosen
	With     string     // the run it is compared with; "": none
	Compared *Comparison
	Asks     []Ask             // what can be done with it, beside stopping it
	Actions  []agentbus.Action // what operators did with it
}

// A Finding is a sentence about the run that somebody looks for.
type Finding struct {
	Kind  Kind
	Text  string
	URL   string // of what shows it; "": several do
	IsRow bool   // that is a row of the run
}

// A Command is one for the terminal.
type Command struct {
	Name string
	Text string
}

// A Line is a row of the tree.
type Line struct {
	Key      string
	URL      string
	Level    int // of indentation, at most 12
	Kind     Kind
	Who      string // its speaker, else its agent
	Agent    string // "": Who says it
	Turn     string // its id without the run
	Depth    int
	Limit    int
	Began    time.Time
	Took     time.Duration
	Bar      [2]int // where it lies in the run, in thousandths: from, and how long
	Usage    agentbus.Usage
	Cost     agentbus.Micros
	Branch   agentbus.Micros // with what was made inside it; 0: nothing was
	Marks    []Mark
	Message  string // of what was refused, failed or is asked
	Code     agentbus.Code
	IsCall   bool
	IsAsk    bool
	Deadline time.Time // of an ask
	Chosen   bool
}

// Indent is the class of its level.
func (l Line) Indent() string { return "lv-" + strconv.Itoa(min(l.Level, 12)) }

// A Mark is what else is worth knowing of a row, such as that it was retried.
type Mark struct {
	Kind Kind
	Text string
}

// A Timeline shows who was called when, a lane an agent, and what it came to.
type Timeline struct {
	Lanes  []Lane
	More   int    // agents without a lane
	Kinds  []Kind // that spans have beside done
	Took   time.Duration
	Spent  string // points of a line, in a box of 1000 by 40
	Cap    bool   // the line burns down from a cap; else it rises from nothing
	Legend string
}

// A Lane is the calls of one agent.
type Lane struct {
	Name  string
	Spans []Span
}

// A Span is one call, or several that lie side by side.
type Span struct {
	X, W  int // in thousandths of the run
	Kind  Kind
	Title string
	URL   string // "": it is several
}

// An Inspector shows all that is known of one row.
type Inspector struct {
	Line

	Call        *agentbus.CallRecord
	Known       bool // its agent is one of this bus
	JournalTurn *agentbus.Turn
	Ask         *agentbus.Interrupt
	Content     bool   // what was said may be shown
	Said        string // its words, from the journal or out of a recorded stream
	SaidMore    int    // bytes of it that are left out
	Seed        string
	Recorded    *Recording // nil: nothing is, and Headers are made of Call
	Asked       *ShownBody // nil: it is not recorded
	Answered    *ShownBody // likewise
	Headers     []Header
	Credential  string
	Hops        string
	Entries     []agentbus.Entry
	Events      []agentbus.Event
	EventsMore  bool
	Raw         string
	Commands    []Command
	Fork        *Ask // nil: it cannot be forked here
}

// A ShownBody is a recorded body on a page.
type ShownBody struct {
	RecordedBody

	Call int64
	Text string // of Body, as much as a page shows
	More int    // bytes of it that are left out
}

// A Replay is what came of making a run again from its record.
type Replay struct {
	Run        agentbus.RunID `json:"run"`
	Identical  bool           `json:"identical"`
	Executions []Replayed     `json:"executions"`
}

// Replayed is what came of one of its executions.
type Replayed struct {
	Execution    agentbus.ExecutionID `json:"execution"`
	Conversation string               `json:"conversation"`
	Turns        int                  `json:"turns"`                // made again
	Events       int                  `json:"events"`               // made again
	Divergence   string               `json:"divergence,omitempty"` // where it left the record; "": it did not
}

// A Comparison is where the transcripts of two runs part.
type Comparison struct {
	Same  int // turns that they have in common
	Sides [2]Side
	Equal bool
	Fault string // why they could not be compared
}

// A Side is the next turn of one of them.
type Side struct {
	Run     agentbus.RunID
	Ended   bool
	Speaker agentbus.Speaker
	Text    string // "": content is not shown
}

// URL is where the run of the side is shown.
func (s Side) URL() string { return "/console/runs/" + httpx.Segment(string(s.Run)) }

// Pretty is data as people read it.
func Pretty(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}
