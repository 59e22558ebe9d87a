// Package agentbus is the vocabulary of the bus and its protocol on the wire.
//
// A [Lineage] travels with every call between agents: which run it belongs to,
// which turn it is, inside which turn it was made, how many hops it has behind
// it and whose credential pays. A gateway passes a call on with
// [Lineage.Forward]; a runtime makes a new one with [Lineage.Next]. There is no
// third way to make an outbound lineage, so depth only rises and the run and
// the payer never change on the way down.
//
// A [Backend] answers a [Call] with a sequence of [Chunk] values; a unary
// answer is a stream of one. A [Middleware] wraps a Backend.
//
// A [Turn] is one call as its driver's journal knows it, a [CallRecord] one as
// the gateway's ledger knows it; both take effect at most once. An [Event] is a
// fact with a position.
//
// An [Error] has a [Code] from one table, which decides its HTTP status and
// whether a client may retry.
//
// The package is types and functions on them: no I/O, no goroutine. It imports
// the standard library and golang.org/x/text only. The rules it keeps are
// named P1 to P25; docs/protocol.md tells them.
//
// # Where to go from here
//
//   - An agent over HTTP is a Backend by packages openai and a2a; a program is
//     one by execagent, and a function by [Answer].
//   - Package conversation lets Backends take turns, durably; package policy
//     gives them deadlines, retries, breakers and budgets.
//   - Package server runs a whole bus from a configuration; package gateway is
//     its handler alone, to mount in a service.
//   - Package agentbustest is a bus for tests.
package agentbus
