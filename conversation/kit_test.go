package conversation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// called is a call as a backend saw it.
type called struct {
	Turn     agentbus.TurnID    `json:"turn"`
	Headers  map[string]string  `json:"headers"`
	Messages []agentbus.Message `json:"messages"`
	Seen     int                `json:"-"`
}

// agents records the calls of all its backends, in order.
type agents struct {
	mu    sync.Mutex // guards calls
	calls []called
}

func (a *agents) record(c *agentbus.Call) {
	h := http.Header{}
	c.Lineage.SetHeaders(h)
	got := called{Turn: c.Lineage.Turn, Headers: map[string]string{}, Messages: c.Messages, Seen: c.Seen}
	for name, v := range h {
		got.Headers[strings.ToLower(name)] = v[0]
	}
	delete(got.Headers, agentbus.HeaderPath) // additive; it has tests of its own
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, got)
}

func (a *agents) turns() (ids []agentbus.TurnID) {
	for _, c := range a.calls {
		ids = append(ids, c.Turn)
	}
	return ids
}

// cent is what a scripted answer costs.
var cent = agentbus.Usage{InputTokens: 2, OutputTokens: 3, Cost: 10_000}

// says answers its nth call with the nth text, and the last one ever after.
func (a *agents) says(texts ...string) agentbus.Backend {
	n := 0
	return a.does(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		text := texts[min(n, len(texts)-1)]
		n++
		return agentbus.Chunk{Text: text, Usage: &cent, Model: "m"}, nil
	})
}

func (a *agents) does(f func(context.Context, *agentbus.Call) (agentbus.Chunk, error)) agentbus.Backend {
	return agentbus.Answer(func(ctx context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		a.record(c)
		return f(ctx, c)
	})
}

// streams is a backend that gives these chunks, then err unless it is nil.
func (a *agents) streams(err error, chunks ...agentbus.Chunk) agentbus.Backend {
	return agentbus.BackendFunc(func(_ context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			a.record(c)
			for _, c := range chunks {
				if !yield(c, nil) {
					return
				}
			}
			if err != nil {
				yield(agentbus.Chunk{}, err)
			}
		}
	})
}

// talk is a conversation of participants given as name, backend, name, ….
func talk(turns int, participants ...any) conversation.Conversation {
	c := conversation.Conversation{Name: "talk", MaxTurns: turns}
	for i := 0; i < len(participants); i += 2 {
		name, _ := participants[i].(string)
		b, _ := participants[i+1].(agentbus.Backend)
		c.Participants = append(c.Participants, conversation.Participant{Name: agentbus.Speaker(name), Backend: b})
	}
	return c
}

// trace is a run as lines, in the form of testdata/reference.json.
func trace(ctx context.Context, c conversation.Conversation, o conversation.Options, each ...func(conversation.Event)) (lines []string, result *conversation.Result, err error) {
	o = recorded(o)
	var id agentbus.ExecutionID
	defer func() { checkReplay(c, o, id) }()
	for e, failed := range conversation.Stream(ctx, c, o) {
		if failed != nil {
			return lines, result, failed
		}
		id = e.Execution
		switch e.Type {
		case conversation.EventStarted:
			lines = append(lines, "start")
		case conversation.EventResumed:
			lines = append(lines, fmt.Sprintf("resumed %d", len(e.Turns)))
		case conversation.EventTurnStarted:
			lines = append(lines, fmt.Sprintf("turn %s", e.Turn.ID))
		case conversation.EventDelta:
			lines = append(lines, "delta "+e.Chunk.Text)
		case conversation.EventRetry:
			lines = append(lines, fmt.Sprintf("retry %d", e.Turn.Attempts))
		case conversation.EventTurnDone:
			text, _ := json.Marshal(e.Turn.Reply.Text)
			lines = append(lines, fmt.Sprintf("end %s %s attempts=%d", e.Turn.ID, text, e.Turn.Attempts))
		case conversation.EventTurnCancelled:
			lines = append(lines, fmt.Sprintf("cancelled %s", e.Turn.ID))
		case conversation.EventJoined:
			lines = append(lines, fmt.Sprintf("joined %d", len(e.Turns)))
		case conversation.EventHalted:
			result = e.Result
			lines = append(lines, fmt.Sprintf("halt %s %d", e.Result.Halt.Kind, len(e.Result.Turns)))
		}
		for _, f := range each {
			f(e)
		}
	}
	return lines, result, nil
}

type scenario struct {
	Name   string
	Events []string
	Calls  []called
}

type reference struct {
	Conversations, Journal              []scenario
	AfterCrash, AfterResume, EmptyPrior []string
	JournalErrors                       map[string]string
	Tails                               []struct{ Name string }
	NestedRepeat                        []struct {
		TurnID, ParentTurnID string
	}
	NestedDepth []struct {
		InboundDepthHeader, InnerOutboundDepth string
	}
	DescribeHalt []struct {
		Halt struct {
			Kind, Reason, Participant, Message string
			Turns                              int
		}
		Text string
	}
	DefineConversation []struct {
		Name  string
		Error *struct{ Message string }
	}
}

func readReference(t *testing.T) (r reference) {
	t.Helper()
	raw, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return r
}
