package agentbustest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/agentbus/agentbus/agentbustest"
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

func begin() (*outside, error) {
	dir, err := os.MkdirTemp("", "agentbustest")
	o := &outside{dir: dir}
	o.Cleanup(func() { err = errors.Join(err, os.RemoveAll(dir)) })
	return o, err
}

// A critic that fails once and breaks off once is asked three times, under one
// turn id, and paid once.
func Example() {
	t, err := begin() // in a test: t is its *testing.T
	if err != nil {
		fmt.Println(err)
		return
	}
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
	t, err := begin()
	if err != nil {
		fmt.Println(err)
		return
	}
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
