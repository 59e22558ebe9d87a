package console

import "github.com/agentbus/agentbus"

// A Page is what the frame needs beside its content.
type Page struct {
	Title   string
	Here    string   // URL of the screen that it belongs to
	Screens []Screen // "" before somebody signed in
	Who     string   // who is signed in; "": nobody
	CSRF    string   // of the session
	Strip   []Figure // health, on every page (U16)
	Content any      // what the screen shows
}

// A Screen is a link of the navigation.
type Screen struct {
	Name  string
	URL   string
	Count int  // of what waits there; 0: nothing is shown
	More  bool // there is more than Count
	Here  bool // set by Render
}

// Screens are those of the console, in the order of their keys.
func Screens() []Screen {
	return []Screen{
		{Name: "Runs", URL: "/console/runs"},
		{Name: "Graph", URL: "/console/graph"},
		{Name: "Payers", URL: "/console/payers"},
		{Name: "Agents", URL: "/console/agents"},
		{Name: "Inbox", URL: "/console/inbox"},
	}
}

// A Figure is a name and a value, such as one of the health strip.
type Figure struct {
	Name  string
	Value string
	Kind  Kind // "": it is as it should be
}

// A Kind is a state as people see it: a word, a shape and what its colour means.
type Kind string

// The kinds of states. Done and Stopped have no colour of their own: there is
// nothing to do about them.
const (
	KindRunning  Kind = "running"
	KindWaiting  Kind = "waiting"
	KindRefused  Kind = "refused"
	KindFailed   Kind = "failed"
	KindPaused   Kind = "paused"
	KindStopped  Kind = "stopped"
	KindReplayed Kind = "replayed"
	KindDone     Kind = "done"
)

// Class is the class of a kind in the stylesheet.
func (k Kind) Class() string {
	if k == "" {
		return ""
	}
	return "is-" + string(k)
}

// A Column is one of a table's.
type Column struct {
	Name    string
	Explain string // more of it, when pointed at
	Number  bool   // aligned to the right
	URL     string // that sorts by it; "": it does not sort
	Sorted  string // "", ascending or descending
	Unsaid  bool   // its name is for those who do not see what stands below it
}

// Filters are a form whose fields stand in the URL.
type Filters struct {
	Fields  []Field
	More    []Field // asked for seldom, behind a word
	MoreSet bool    // one of them is set
	Clear   string  // URL without any; "": none is set
}

// A Field is one filter.
type Field struct {
	Name    string
	Label   string
	Value   string
	Options []string // a choice; empty: any text
	Sole    bool     // one of its options is always chosen
	Example string   // of what may be typed; "": any
	Hidden  bool     // it stays as it is
}

// A Pager leads through a list.
type Pager struct {
	Text   string // what is shown
	First  string // URLs; "": there is none
	Before string
	Next   string
	Last   string
}

// An Empty says what is not here, and what to do about it.
type Empty struct {
	Title   string
	Text    string
	Command string
	URL     string
	Link    string
}

// An Ask is an action that is asked for once more before it is done (U5).
type Ask struct {
	Label       string // of the button that asks
	Action      string // URL
	CSRF        string
	Consequence string
	Confirm     string // of the button that does it
	Fields      []Field
	Calm        bool // it ends nothing
}

// Money is an amount for the part of that name.
type Money struct {
	Amount    agentbus.Micros
	Estimated bool
}

// Whole is the part of the amount that is read first: down to the cents.
func (m Money) Whole() string {
	s := m.Amount.USD()
	return s[:max(0, len(s)-4)]
}

// Rest is what follows it: a cent's fractions.
func (m Money) Rest() string {
	s := m.Amount.USD()
	return s[max(0, len(s)-4):]
}

// SignIn is the content of the screen signin.
type SignIn struct {
	For     string // how long one stays signed in
	Next    string // where it goes on; "": to the runs
	Refused string // why the last try was; "": there was none
	Kind    Kind
}

// Problem is the content of the screen problem.
type Problem struct {
	Title   string
	Message string
	Next    string
	Code    agentbus.Code
	URL     string // where to go on, and what that is called
	Link    string
}
