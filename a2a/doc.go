// Package a2a is the A2A 1.0 dialect of the bus, in both directions: the face,
// by which an agent of any kind answers A2A clients; the client, by which the
// runtime calls A2A agents; and what the gateway needs to pass A2A through byte
// for byte. Agent cards, addresses, the chain of agents and policy parts are
// here as well. The rules it keeps are named A1 to A38, C1 to C36 and K1 to K11.
package a2a
