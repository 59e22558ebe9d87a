package agentbus

import "time"

// A Result is what became of a request, for who counts them (G33).
type Result string

// The results of a request.
const (
	ResultSettled  Result = "settled"  // an agent executed it, and its answer counts
	ResultVoided   Result = "voided"   // an agent was called, and its answer does not count
	ResultReplayed Result = "replayed" // answered from memory
	ResultAttached Result = "attached" // a duplicate of a call in flight, answered with it
	ResultRefused  Result = "refused"  // policy said no, or nothing could be executed
	ResultPassed   Result = "passed"   // passed on, but not a call
	ResultAnswered Result = "answered" // by the bus itself, such as the list of models
	ResultLeft     Result = "left"     // its caller left before there was an answer, or its end (G14)
)

// An Observation is what became of one request at a gateway, told once, when it
// has ended, to who counts requests (G33) or traces them (G34). It belongs to
// the request: who is told keeps nothing of it and changes nothing.
type Observation struct {
	// Call is the record of the request, whether or not it executed anything.
	// Its Agent is what the caller asked for, and may be anything.
	Call   *CallRecord
	Result Result
	// Agent is the configured name of the agent; "" when there is no such agent
	// or the request did not come so far. Kind is the agent's, Model what it is
	// asked for, Host where it is; "" for an agent of this process.
	Agent, Kind, Model, Host string
	Method                   string // of the request, as it came
	Route                    string // as it is configured, such as /agents/{name}/{path...}

	FirstByte time.Time // when the answer began; zero: there was none
	// Called is when the agent was called; zero: it was not. Upstream is how
	// long the bus then waited for it: for its head, and for each piece of its
	// answer. Answered is when it had answered.
	Called, Answered time.Time
	Upstream         time.Duration

	// Parent is the caller's span, Server that of this request, and Client that
	// of the call to the agent, which the agent was told as its parent. All are
	// zero for a request of no trace. TraceState came with Parent.
	Parent, Server, Client SpanContext
	TraceState             string
}
