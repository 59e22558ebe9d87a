package agentbustest_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
	"github.com/agentbus/agentbus/server"
)

// outside stands where no test is, so that the example can be run: in a test,
// give [agentbustest.New] its *testing.T.
type outside struct {
	dir      string
	cleanups []func()
}

func (o *outside) Helper()                   {}
func (o *outside) Context() context.Context  { return context.Background() }
func (o *outside) TempDir() string           { return o.dir }
func (o *outside) Cleanup(f func())          { o.cleanups = append(o.cleanups, f) }
func (o *outside) Errorf(f string, a ...any) { fmt.Printf(f+"\n", a...) }
func (o *outside) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (o *outside) end() {
	for _, f := range slices.Backward(o.cleanups) {
		f()
	}
}

func begin() *outside {
	dir, err := os.MkdirTemp("", "agentbustest")
	if err != nil {
		panic(err)
	}
	o := &outside{dir: dir}
	o.Cleanup(func() { _ = os.RemoveAll(dir) })
	return o
}

// A critic that fails once and breaks off once is asked three times, under one
// turn id, and paid once.
func Example() {
	t := begin() // in a test: t is its *testing.T
	defer t.end()
	bus := agentbustest.New(t, agentbustest.Config{
		Agents: map[string]agentbustest.Agent{
			"author": {Answers: []agentbustest.Answer{{Text: "here is the plan"}}},
			"critic": {Answers: []agentbustest.Answer{{Status: 503}, {Text: "I would", Cut: true}, {Text: "AGREED"}}},
		},
		YAML: `
agents: {critic: {price: {call: 0.02}}}
conversations:
  review:
    participants: [{agent: author}, {agent: critic}]
    halt: {contains: AGREED}
    call_policy: {retries: 2, backoff: {base: 1ms}}
`,
	})
	result := bus.Run("review", "write a plan")
	fmt.Println(result.Halt)
	for _, turn := range result.Turns {
		fmt.Printf("%s: %s ×%d\n", turn.Speaker, turn.Reply.Text, turn.Attempts)
	}
	fmt.Println("asked", len(bus.Requests("critic")), "times, charged $"+bus.Charged(agentbustest.User).USD())
	// Output:
	// predicate: critic said "AGREED"
	// author: here is the plan ×1
	// critic: AGREED ×3
	// asked 3 times, charged $0.020000
}

func ExampleBus_Ask() {
	t := begin()
	defer t.end()
	bus := agentbustest.New(t, agentbustest.Config{Agents: map[string]agentbustest.Agent{"greeter": {Answers: []agentbustest.Answer{{Text: "good morning"}, {Text: "you again"}}}}})
	for range 2 {
		reply, err := bus.Ask(context.Background(), "greeter", "hello")
		fmt.Println(reply.Text, err)
	}
	// Output:
	// good morning <nil>
	// you again <nil>
}

// Agents are given as what they are: a server, a Backend, or a script of answers
// that fail.
func ExampleAgent() {
	t := begin()
	defer t.end()
	mine := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "you said " + c.Messages[0].Content}, nil
	})
	bus := agentbustest.New(t, agentbustest.Config{Agents: map[string]agentbustest.Agent{
		"mine": {Backend: mine},
		"busy": {Answers: []agentbustest.Answer{{Status: 503, Text: "not now", RetryAfter: 2 * time.Second}}},
	}})
	reply, err := bus.Ask(context.Background(), "mine", "hello")
	fmt.Println(reply.Text, err)
	_, err = bus.Ask(context.Background(), "busy", "hello")
	fmt.Println(agentbus.CodeOf(err), agentbus.AsError(err).RetryAfter)
	// Output:
	// you said hello <nil>
	// agent_unavailable 2s
}

// What an agent was sent tells which turn it served, and what it was told.
func ExampleBus_Requests() {
	t := begin()
	defer t.end()
	bus := agentbustest.New(t, agentbustest.Config{
		Agents: map[string]agentbustest.Agent{"ann": {Answers: []agentbustest.Answer{{Text: "good morning"}}}, "bob": {}},
		YAML:   `conversations: {talk: {participants: [{agent: ann}, {agent: bob}], max_turns: 2}}`,
	})
	run := bus.Run("talk", "greet each other").Run
	for _, r := range bus.Requests("bob") {
		fmt.Println(r.Lineage.Turn == run.Turn(1, "bob"), r.Lineage.Depth, r.Messages[len(r.Messages)-1].Content)
	}
	fmt.Println(len(bus.Calls(run)), "calls")
	// Output:
	// true 1 [ann] good morning
	// 2 calls
}

// A halt that is not final is resumed, here with more money.
func ExampleBus_Drive() {
	t := begin()
	defer t.end()
	bus := agentbustest.New(t, agentbustest.Config{
		Agents: map[string]agentbustest.Agent{"ann": {}, "bob": {}},
		YAML: `
agents: {ann: {price: {call: 0.02}}, bob: {price: {call: 0.02}}}
conversations: {talk: {participants: [{agent: ann}, {agent: bob}], max_turns: 2, budget_usd: 0.02}}
`,
	})
	result := bus.Run("talk", "begin")
	fmt.Println(len(result.Turns), result.Halt.Kind)
	result, err := bus.Drive(context.Background(), server.Start{Run: result.Run, Resume: true, Budget: new(agentbus.Micros(1_000_000))})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(result.Turns), result.Halt.Kind)
	// Output:
	// 1 budget
	// 2 max_turns
}

// A conversation that is replayed calls nobody, and is made again to the byte.
func ExampleReplay() {
	t := begin()
	defer t.end()
	bus := agentbustest.New(t, agentbustest.Config{
		Agents: map[string]agentbustest.Agent{"author": {Answers: []agentbustest.Answer{{Text: "done"}}}, "critic": {}},
		YAML:   `conversations: {review: {participants: [{agent: author}, {agent: critic}], max_turns: 4}}`,
	})
	result := bus.Run("review", "write")
	agentbustest.Replay(t, bus.Server()) // tells t what differs
	fmt.Println(result.Halt, "after", len(bus.Requests("author")), "requests to the author")
	// Output: max_turns (4) after 2 requests to the author
}
