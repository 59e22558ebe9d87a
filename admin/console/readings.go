package console

import (
	"time"

	"github.com/agentbus/agentbus"
)

// What the admin API answers and a screen shows is one type, so that neither can
// say what the other does not.

// A Graph is who called whom (U12).
type Graph struct {
	Run     agentbus.RunID `json:"run,omitempty"`  // "": of all runs
	Since   time.Time      `json:"since,omitzero"` // of all runs: calls that began earlier are left out
	Calls   int            `json:"calls"`          // that were looked at, refusals included
	Partial bool           `json:"partial"`        // there were more: these are the newest
	Nodes   []Node         `json:"nodes"`          // by name
	Edges   []Edge         `json:"edges"`          // by their ends
	Cycles  []Cycle        `json:"cycles"`
}

// A Node is an agent, or somebody from outside who calls agents.
type Node struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`  // of the agent; "caller": from outside; "": an agent that is configured no more
	Calls int    `json:"calls"` // of it, refusals left out

	Payer agentbus.Payer `json:"-"` // of a caller: who pays for all its calls; "": several do
}

// KindCaller is the kind of a Node that is no agent.
const KindCaller = "caller"

// UnknownAgents is the Node for all names that were asked for and that no agent
// has. No agent can be called so.
const UnknownAgents = "unknown agents"

// An Edge is the calls from one node to another.
type Edge struct {
	From     string          `json:"from"`
	To       string          `json:"to"`
	Calls    int             `json:"calls"`   // executed, or being executed
	Replays  int             `json:"replays"` // answered from memory
	Failed   int             `json:"failed"`  // voided
	Refused  int             `json:"refused"` // repeats included
	Errors   float64         `json:"errors"`  // share of the failed and refused, from 0 to 1
	P95      float64         `json:"p95_ms"`  // of executed calls, with their wait for a place
	Cost     agentbus.Micros `json:"cost_micros"`
	Verbatim bool            `json:"verbatim"` // the agent is sent the payer's credential as it came
	Cycle    bool            `json:"cycle"`    // it is part of one
}

// A Cycle is agents that call each other in a circle.
type Cycle struct {
	Agents  []string `json:"agents"`  // in the order in which they call
	Calls   int      `json:"calls"`   // between them
	Refused int      `json:"refused"` // of these
}

// An Agent is an agent as operators see it (U14).
type Agent struct {
	Name     string            `json:"name"`
	Kind     string            `json:"kind"`
	Address  string            `json:"address,omitempty"` // under which everybody finds it
	Command  []string          `json:"command,omitempty"` // of a program
	Model    string            `json:"model,omitempty"`   // its own name of it; "": the caller's is passed on
	Card     string            `json:"card,omitempty"`    // where its A2A card is read on this bus
	Aliases  []string          `json:"aliases"`           // beside the built-in ones
	URLs     []URL             `json:"urls"`              // empty: it lives in the bus
	Price    *agentbus.Price   `json:"price"`             // null: nothing is known of it
	Trust    Trust             `json:"trust"`
	Breakers []Breaker         `json:"breakers"`          // of the conversations that it takes part in
	InFlight int               `json:"in_flight"`         // calls that this process is executing
	Limit    int               `json:"limit,omitempty"`   // of calls at once; 0: any number
	Waiting  int               `json:"waiting"`           // calls that wait for a place
	Queue    int               `json:"queue,omitempty"`   // how many may
	Drained  *agentbus.Drained `json:"drained,omitempty"` // it gets no new calls
}

// A Recording is what a call was asked and answered, where calls are recorded
// (U11).
type Recording struct {
	Call         int64         `json:"call"`
	Attempt      int           `json:"attempt"` // that it is of; those before it are not kept
	At           time.Time     `json:"at"`
	RecordedBody               // of the request
	Answer       *RecordedBody `json:"answer,omitempty"` // nil: none was recorded
	Shown        bool          `json:"shown"`            // bodies may be
	Headers      []Header      `json:"headers"`          // by name
}

// A RecordedBody is a body as far as it is kept.
type RecordedBody struct {
	Size int64  `json:"size"`           // bytes as it came
	Body string `json:"body,omitempty"` // "" with a Size: it may not be shown, or was not kept
	Cut  bool   `json:"cut"`            // Body is its beginning
}

// A Header is a header of the protocol as a call came with it, and as it went on
// to the agent.
type Header struct {
	Name    string `json:"name"`
	In      string `json:"in,omitempty"`
	Out     string `json:"out,omitempty"`
	Changed bool   `json:"changed"`
}

// Trust is what an agent is sent of credentials and of who calls.
type Trust struct {
	Sent     []string `json:"sent"`     // in words; empty: nothing
	Verbatim bool     `json:"verbatim"` // the payer's credential, as it came
}

// A Breaker is the state of the breaker of a participant (R12).
type Breaker struct {
	Conversation string `json:"conversation"`
	State        string `json:"state"` // closed, open or half-open
}

// A URL is a place where an agent is reached.
type URL struct {
	URL      string    `json:"url"`
	Health   Health    `json:"health,omitempty"` // "": no bus was asked
	InFlight int       `json:"in_flight"`
	Failures int       `json:"failures"` // in a row
	Ejected  time.Time `json:"ejected_until,omitzero"`
}

// Health says whether calls are sent to a URL.
type Health string

// The states of a URL (G13).
const (
	HealthGood    Health = "good"
	HealthProbing Health = "probing" // one call is let through, to see whether it is back
	HealthEjected Health = "ejected" // none is, until a time
)

// A Record is how an agent did lately, by the ledger.
type Record struct {
	Since       time.Time       `json:"since"`
	Calls       int             `json:"calls"` // that ended, with an answer or without
	Partial     bool            `json:"partial"`
	Errors      []CodeCount     `json:"errors"` // the most frequent first
	P50         float64         `json:"p50_ms"`
	P95         float64         `json:"p95_ms"`
	P99         float64         `json:"p99_ms"`
	LastSuccess time.Time       `json:"last_success,omitzero"`
	Turn        agentbus.Micros `json:"cost_per_turn_micros"` // of settled calls, the mean
}

// A CodeCount is how often something went wrong in one way.
type CodeCount struct {
	Code  agentbus.Code `json:"code"`
	Count int           `json:"count"`
}

// A Probe is what was found at a place of an agent.
type Probe struct {
	Where  string  `json:"where"` // a URL or a command
	OK     bool    `json:"ok"`
	Status int     `json:"status,omitempty"` // HTTP status of the answer
	Took   float64 `json:"took_ms"`
	Text   string  `json:"text"` // what it means
}

// A Cap is a budget of a payer in the present period (U13).
type Cap struct {
	Account   string          `json:"account"`
	Period    string          `json:"period"` // hour, day, month or total
	Ends      time.Time       `json:"ends,omitzero"`
	Strict    bool            `json:"strict"`
	Limit     agentbus.Micros `json:"limit_micros"`
	Reserved  agentbus.Micros `json:"reserved_micros"`
	Settled   agentbus.Micros `json:"settled_micros"`
	Remaining agentbus.Micros `json:"remaining_micros"` // below 0 when a budget that is not strict was overshot
	Forecast  agentbus.Micros `json:"forecast_micros"`  // what is settled at the end of the period, at the present rate
	Reached   time.Time       `json:"reached,omitzero"` // when the limit is, at the present rate
}

// A Payer is what somebody's account comes to (U13).
type Payer struct {
	agentbus.Balance

	Caps []Cap           `json:"caps"`
	Rate agentbus.Micros `json:"rate_micros"` // charged in the last hour
}

// A PayerDetail is an account taken apart.
type PayerDetail struct {
	Payer

	ByAgent []agentbus.Spending `json:"by_agent"`
	ByRun   []agentbus.Spending `json:"by_run"`
	ByDay   []agentbus.Spending `json:"by_day"`
	Partial bool                `json:"partial"` // old entries were left out of these
	Stale   []Stale             `json:"stale"`
}

// A Stale is a call that was reserved more than a minute ago and is neither
// settled nor voided.
type Stale struct {
	Call  int64           `json:"call"`
	Agent string          `json:"agent"`
	Run   agentbus.RunID  `json:"run"`
	Turn  agentbus.TurnID `json:"turn"`
	Owner string          `json:"owner"` // the process that executes it, or did
	Lives bool            `json:"lives"` // it is being executed by this process
	Held  agentbus.Micros `json:"held_micros"`
	Began time.Time       `json:"began"`
}

// A Remark is something of a call that an operator should know (U15).
type Remark struct {
	Kind    RemarkKind         `json:"kind"`
	At      time.Time          `json:"at"`
	Run     agentbus.RunID     `json:"run"`
	Turn    agentbus.TurnID    `json:"turn,omitempty"`
	Agent   string             `json:"agent"`
	Caller  string             `json:"caller"`
	State   agentbus.CallState `json:"state"`
	Message string             `json:"message,omitempty"` // what the caller read
	Count   int                `json:"count"`             // with its repeats
}

// A RemarkKind says what a Remark is about.
type RemarkKind string

// The kinds of a Remark.
const (
	RemarkDepth     RemarkKind = "depth_regression"  // a call claimed to be less deep than its parent allows
	RemarkForwarded RemarkKind = "forwarded_ignored" // a forwarded credential of who may not forward any
	RemarkCycle     RemarkKind = "cycle"             // an agent was asked what it is answering
)

// Vitals are how the bus does (U16).
type Vitals struct {
	Version  string      `json:"version"`
	Owner    string      `json:"owner"`    // this process
	Replicas []string    `json:"replicas"` // that use the store and live, this one included
	Started  time.Time   `json:"started"`
	Store    StoreState  `json:"store"`
	Live     int         `json:"live_calls"`
	InFlight int         `json:"in_flight"` // requests that are being served
	Detached int         `json:"detached"`  // calls that go on without their caller
	Queue    int         `json:"queue"`     // calls that wait for an agent
	Config   ConfigState `json:"config"`
}

// A StoreState is how the store does.
type StoreState struct {
	Error string  `json:"error,omitempty"` // why nothing can be written; "": it can
	P50   float64 `json:"commit_p50_ms"`   // of the last commits
	P99   float64 `json:"commit_p99_ms"`
	Queue int     `json:"queue"` // writes that wait
}

// A ConfigState says whether the configuration in force is what its file says.
type ConfigState struct {
	Path    string    `json:"path,omitempty"` // "": there is no file
	Valid   bool      `json:"valid"`
	Read    time.Time `json:"read,omitzero"`     // when it was read again last
	Faults  []Fault   `json:"faults"`            // of the file as it is now; the one before it is in force
	Waiting []string  `json:"waiting,omitempty"` // keys whose change waits for a restart
}

// A Fault is what is wrong with a configuration.
type Fault struct {
	Line    int    `json:"line,omitempty"`
	Key     string `json:"key,omitempty"`
	Problem string `json:"problem"`
	Fix     string `json:"fix,omitempty"`
}
