package conversation

import "github.com/agentbus/agentbus"

// A Plan decides who speaks next from the turns so far: those that are done, and
// the branches that ended otherwise before their join was met, with their
// State. It is pure: the same turns give the same step, in any process, which is what makes a resumed
// run the same run. It must not change the turns. An error ends the driver and
// leaves the run paused.
type Plan interface {
	Next(turns []agentbus.Turn) (Step, error)
}

// A Step is what a Plan decided.
type Step struct {
	// Speaker is the name of the participant that speaks next.
	Speaker agentbus.Speaker
	// Together are the names of several participants that speak at once, each to
	// what was said before; Speaker is not looked at then (R20). Nobody twice.
	Together []agentbus.Speaker
	// Join says when those have come together; "" is JoinAll.
	Join Join
	// Say is said to whoever speaks first, as a message of its user; "" is
	// nothing.
	Say string
	// Inside says that the turn before it calls Speaker, as by a mention: the turn
	// is made inside of that one, a hop further in the chain of agents (C7). Where
	// that may call nobody, Instead speaks, and an event tells so (C8).
	Inside  bool
	Instead agentbus.Speaker
	// Done says that the conversation is over instead, because of Reason.
	Done   bool
	Reason string
}

// PlanFunc is a function as a Plan.
type PlanFunc func(turns []agentbus.Turn) (Step, error)

// Next calls f.
func (f PlanFunc) Next(turns []agentbus.Turn) (Step, error) { return f(turns) }

// Alternate is a Plan: two participants in turn, the first begins.
type Alternate [2]agentbus.Speaker

// Next returns the one whose turn it is.
func (a Alternate) Next(turns []agentbus.Turn) (Step, error) {
	return Step{Speaker: a[len(turns)%2]}, nil
}

// RoundRobin is a Plan: its participants in order, over and over.
type RoundRobin []agentbus.Speaker

// Next returns the one whose turn it is; an empty RoundRobin is done.
func (r RoundRobin) Next(turns []agentbus.Turn) (Step, error) {
	if len(r) == 0 {
		return Step{Done: true, Reason: "nobody takes part"}, nil
	}
	return Step{Speaker: r[len(turns)%len(r)]}, nil
}
