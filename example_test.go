package agentbus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync/atomic"

	"github.com/agentbus/agentbus"
)

func ExampleParseLineage() {
	h := http.Header{}
	h.Set("X-Tangle-RunId", "conv_abc")
	h.Set("X-Tangle-TurnId", "conv_abc.t0.critic")
	h.Set("X-Tangle-Forwarded-Depth", "2")
	l, err := agentbus.ParseLineage(h)
	fmt.Println(l.Run, l.Turn, l.Depth, err)

	h.Set("X-Tangle-Forwarded-Depth", "four")
	_, err = agentbus.ParseLineage(h)
	fmt.Println(err, agentbus.CodeOf(err).Status())
	// Output:
	// conv_abc conv_abc.t0.critic 2 <nil>
	// invalid_depth: x-tangle-forwarded-depth is not a number of hops 400
}

func ExampleLineage_Next() {
	in := agentbus.Lineage{Run: "conv_abc", Turn: "conv_abc.t0.researcher", Depth: 1}
	out, err := in.Next(in.Run.Turn(0, "critic"), "critic")
	fmt.Println(out.Depth, out.Turn, "inside", out.Parent, err)
	// Output: 2 conv_abc.t0.critic inside conv_abc.t0.researcher <nil>
}

func ExampleLineage_Forward() {
	in := agentbus.Lineage{Run: "conv_abc", Turn: "conv_abc.t0.researcher", Depth: 1}
	out := in.Forward()
	fmt.Println(out.Depth, out.Turn)
	// Output: 2 conv_abc.t0.researcher
}

func ExampleLineage_CheckDepth() {
	l := agentbus.Lineage{Run: "conv_abc", Depth: 4}
	fmt.Println(l.CheckDepth(agentbus.DefaultMaxDepth))
	// Output: bridge_depth_exceeded: depth 4 reaches the limit of 4: this call would be hop 5 of run conv_abc
}

func ExampleRunID_Turn() {
	run := agentbus.RunID("conv_abc")
	fmt.Println(run.Turn(0, "GPT-5 Codex"), run.Turn(1, "研究者"))
	// Output: conv_abc.t0.gpt-5-codex conv_abc.t1.anon
}

// counter is an agent that counts what it was asked.
type counter struct{ calls atomic.Int64 }

func (b *counter) Call(_ context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		if len(c.Messages) == 0 {
			yield(agentbus.Chunk{}, &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "there is no message; send one"})
			return
		}
		yield(agentbus.Chunk{Text: fmt.Sprintf("question %d: %s", b.calls.Add(1), c.Messages[0].Content), Finish: "stop"}, nil)
	}
}

// A backend of one's own is anything with this method. It does nothing before its
// answer is read. Answer makes one of a function that answers at once.
func ExampleBackend() {
	var b agentbus.Backend = &counter{}
	reply, err := agentbus.Collect(b.Call(context.Background(), &agentbus.Call{Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "is it ready?"}}}))
	fmt.Println(reply.Text, err)
	_, err = agentbus.Collect(b.Call(context.Background(), &agentbus.Call{}))
	fmt.Println(err)
	// Output:
	// question 1: is it ready? <nil>
	// invalid_request: there is no message; send one
}

// A middleware sees each call on its way in and each chunk on its way out, so it
// works for streams and whole answers alike. This one tells what calls use.
func ExampleMiddleware() {
	var meter agentbus.Middleware = func(next agentbus.Backend) agentbus.Backend {
		return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
			return func(yield func(agentbus.Chunk, error) bool) {
				for chunk, err := range next.Call(ctx, c) {
					if chunk.Usage != nil {
						fmt.Println(c.Agent, "used", chunk.Usage.OutputTokens, "tokens")
					}
					if !yield(chunk, err) {
						return
					}
				}
			}
		})
	}
	critic := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "no objection", Usage: &agentbus.Usage{OutputTokens: 2}}, nil
	})
	reply, err := agentbus.Collect(agentbus.Wrap(critic, meter).Call(context.Background(), &agentbus.Call{Agent: "critic"}))
	fmt.Println(reply.Text, err)
	// Output:
	// critic used 2 tokens
	// no objection <nil>
}

// A call is what an agent is asked, and where in its run it stands.
func ExampleCall() {
	run := agentbus.RunID("conv_abc")
	call := &agentbus.Call{
		Agent: "critic", Lineage: agentbus.Lineage{Run: run, Turn: run.Turn(0, "critic")},
		Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "is it ready?"}},
	}
	critic := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: string(c.Lineage.Turn) + " heard: " + c.Messages[0].Content}, nil
	})
	reply, err := agentbus.Collect(critic.Call(context.Background(), call))
	fmt.Println(reply.Text, err)
	// Output: conv_abc.t0.critic heard: is it ready? <nil>
}

// An answer comes in chunks: text as it is written, then what it took.
func ExampleChunk() {
	slow := agentbus.BackendFunc(func(context.Context, *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			_ = yield(agentbus.Chunk{Text: "no "}, nil) &&
				yield(agentbus.Chunk{Text: "objection"}, nil) &&
				yield(agentbus.Chunk{Usage: &agentbus.Usage{OutputTokens: 2}, Finish: "stop"}, nil)
		}
	})
	for chunk, err := range slow.Call(context.Background(), &agentbus.Call{Agent: "critic"}) {
		fmt.Printf("%q %q %v\n", chunk.Text, chunk.Finish, err)
	}
	// Output:
	// "no " "" <nil>
	// "objection" "" <nil>
	// "" "stop" <nil>
}

// The first middleware that is listed sees a call first.
func ExampleWrap() {
	announce := func(name string) agentbus.Middleware {
		return func(next agentbus.Backend) agentbus.Backend {
			return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
				fmt.Println(name, "passes", c.Agent, "on")
				return next.Call(ctx, c)
			})
		}
	}
	critic := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "no objection"}, nil
	})
	agent := agentbus.Wrap(critic, announce("the deadline"), announce("the retry"))
	reply, err := agentbus.Collect(agent.Call(context.Background(), &agentbus.Call{Agent: "critic"}))
	fmt.Println(reply.Text, err)
	// Output:
	// the deadline passes critic on
	// the retry passes critic on
	// no objection <nil>
}

func ExampleCollect() {
	answer := func(yield func(agentbus.Chunk, error) bool) {
		_ = yield(agentbus.Chunk{Text: "no obj"}, nil) && // the connection breaks here
			yield(agentbus.Chunk{Void: true}, nil) && // so another attempt begins
			yield(agentbus.Chunk{Text: "no "}, nil) &&
			yield(agentbus.Chunk{Text: "objection", Finish: "stop"}, nil)
	}
	reply, err := agentbus.Collect(answer)
	fmt.Printf("%q %s %v\n", reply.Text, reply.Finish, err)
	// Output: "no objection" stop <nil>
}

func ExampleError() {
	cause := errors.New("dial tcp 10.0.0.7:443: connection refused")
	err := fmt.Errorf("call critic: %w", &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the agent critic does not answer", Err: cause,
	})
	fmt.Println("logged:", err)

	sent, _ := json.Marshal(agentbus.AsError(err))
	fmt.Println("sent:", string(sent))

	code := agentbus.CodeOf(err)
	fmt.Println(code.Status(), code.Retryable(), errors.Is(err, &agentbus.Error{Code: agentbus.CodeAgentUnavailable}))
	// Output:
	// logged: call critic: agent_unavailable: the agent critic does not answer: dial tcp 10.0.0.7:443: connection refused
	// sent: {"code":"agent_unavailable","message":"the agent critic does not answer"}
	// 502 true true
}

func ExampleParseUSD() {
	m, err := agentbus.ParseUSD("0.004")
	fmt.Println(m.USD(), int64(m), err)
	// Output: 0.004000 4000 <nil>
}
