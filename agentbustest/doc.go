// Package agentbustest is a whole bus for tests: the real gateway, the real
// conversations and the real store, with agents that do as the test says.
//
// [New] starts a bus on a socket of this machine, with a store in a directory of
// the test; it is gone, with all that it started, when the test ends. Its agents
// are servers of their own on the same machine: scripted by [Answer], a Backend,
// or any http.Handler. So what a test sees is what happens in production, down to
// the bytes: a stream that breaks off, an agent that hangs, a turn that is asked
// for twice and charged once.
//
//	bus := agentbustest.New(t, agentbustest.Config{
//		Agents: map[string]agentbustest.Agent{
//			"author": {Answers: []agentbustest.Answer{{Text: "here is the plan"}}},
//			"critic": {Answers: []agentbustest.Answer{{Status: 503}, {Text: "AGREED"}}},
//		},
//		YAML: `conversations: {review: {participants: [{agent: author}, {agent: critic}], halt: {contains: AGREED}}}`,
//	})
//	result := bus.Run("review", "write a plan")
//
// # Goroutines
//
// A bus serves in goroutines of its own, and so does each agent. Cleanup waits
// for all of them. Calls that still go on then are cut.
package agentbustest
