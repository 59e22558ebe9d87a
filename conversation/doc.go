// Package conversation runs two or more participants that take turns, under a
// plan, limits and a journal.
//
// A [Conversation] is a definition. [Run] and [Stream] drive it: a [Plan] says
// who speaks next, the intent is written to the [Journal], the participant's
// backend is called with a lineage made by [agentbus.Lineage.Next], the result
// is written. The driver has no memory but the journal, so resuming is not a
// special path: run the loop again with the same run id, and it goes on where
// the journal ends (R15). [Backend] makes a conversation a participant of
// another one (R7).
//
// # Several at once
//
// A step may name several participants (R20). Their turns follow each other in
// the order of the step, are begun before the first is called, hear nothing of
// each other, and are each finished when they end. Their events are held until
// all have ended, so that they stand in the order of the step, whoever was
// faster. See [Join] for when that is, and [FanOut] for the plan that does
// nothing else.
//
// # What counts as a hop
//
// Depth counts the parties that pass a call on or make a call while serving
// one (P9). With the limit of 4, depths 0 to 3 are served:
//
//	who                                                  does to depth
//	a plain client                                       sends 0, or nothing
//	a driver that serves nobody                          its calls carry 1
//	a driver that serves a call of depth n               its calls carry n+1
//	a nested conversation in the same process            the same: it serves its turn, n+1
//	a gateway or router that passes a call on            adds 1
//	a gateway entered in memory by a driver of its bus   adds nothing: that hop is counted by the driver
//	a retry, a replay, a resumed turn                    adds nothing: it is the same call
//
// So with an origin at 0, a call has depth 1 behind a router, and the calls of
// the runtime that answers it have depth 2. Behind gateways a nesting counts
// twice: once for the runtime, once for the gateway.
//
// # Goroutines
//
// Each call of a backend runs in a goroutine, so that a driver can leave a
// backend that ignores its context: it waits 100 ms for it after cancelling,
// then goes on without it. That goroutine ends when the backend returns; what
// it says until then is dropped. One more goroutine renews the lease, and the
// driver waits for it. While several speak at once, each has a goroutine that
// hands its words to the driver, which alone writes and tells; all of them have
// ended before the next turn begins. There are no others.
package conversation
