// Package faults names the points of a call's life, and of a turn's, at which a
// process may be killed, and kills it there. A program built as usual has none of it: only the
// build tag "faults" makes [At] do something, and then only what AGENTBUS_FAULT
// in the environment says: POINT, or POINT:N for the N-th time it is passed.
package faults

// A Point is a moment of a call's life, next to something durable or to an
// acknowledgement.
type Point string

// The points, in the order in which a call meets them. Each commit of the store
// passes three of its own.
const (
	ReserveBefore Point = "reserve.before" // nothing is stored
	ReserveAfter  Point = "reserve.after"  // the reservation is durable, the agent not called
	AgentAnswered Point = "agent.answered" // the head of its answer is here
	AppendBefore  Point = "append.before"  // a batch of a stream was sent and is not stored
	AppendAfter   Point = "append.after"
	SettleBefore  Point = "settle.before" // the answer is whole and not stored
	SettleAfter   Point = "settle.after"  // it is stored and charged, and not acknowledged
	AckAmid       Point = "ack.amid"      // a part of it is sent
	AckAfter      Point = "ack.after"     // all of it is
	VoidBefore    Point = "void.before"   // the attempt failed, and its key is not free yet
	VoidAfter     Point = "void.after"
	ReplayAmid    Point = "replay.amid" // the head of an answer from memory is written
	ReplayAfter   Point = "replay.after"
	RecordBefore  Point = "record.before" // a refusal was answered and is not recorded
	RecordAfter   Point = "record.after"
	CommitBegun   Point = "commit.begun" // a transaction of the store is open
	CommitAmid    Point = "commit.amid"  // all its writes are made, and it is not committed
	CommitAfter   Point = "commit.after" // it is durable, and nobody was told
)

// Points returns every point of a call. Tests go through all of them.
func Points() []Point {
	return []Point{
		ReserveBefore, ReserveAfter, AgentAnswered, AppendBefore, AppendAfter, SettleBefore, SettleAfter, AckAmid, AckAfter,
		VoidBefore, VoidAfter, ReplayAmid, ReplayAfter, RecordBefore, RecordAfter, CommitBegun, CommitAmid, CommitAfter,
	}
}

// The points of a driver, in the order in which a turn meets them. Several turns
// at once meet the middle ones side by side.
const (
	BeginBefore  Point = "begin.before" // the intents of a step are not stored
	BeginAfter   Point = "begin.after"  // they are durable, and nobody was called
	SpeakAmid    Point = "speak.amid"   // a piece of an answer was heard
	FinishBefore Point = "finish.before"
	FinishAfter  Point = "finish.after" // the answer is durable with the next intent, and nobody was told
	HaltBefore   Point = "halt.before"
	HaltAfter    Point = "halt.after" // why it halted is durable, and nobody was told
)

// DriverPoints returns every point of a driver. Tests go through all of them.
func DriverPoints() []Point {
	return []Point{BeginBefore, BeginAfter, SpeakAmid, FinishBefore, FinishAfter, HaltBefore, HaltAfter}
}
