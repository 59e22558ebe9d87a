package agentbustest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/openai"
	"github.com/agentbus/agentbus/server"
)

// User is the principal that every bus has a key of: who calls, and pays, unless
// a test says otherwise.
const User = "user"

// T is what a bus needs of a test; *testing.T and *testing.B have it. Fatalf must
// not return.
type T interface {
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A Config says what bus a test wants. Its zero value is a bus without agents.
type Config struct {
	// Agents are those of the bus, by name.
	Agents map[string]Agent
	// YAML is more of agentbus.yaml: conversations, budgets, limits, agents of
	// other kinds, and other keys of Agents, such as price or max_cost_usd. What
	// it does not say is as in production, but for drain_timeout, which is 50ms.
	YAML string
	// Principals have keys beside User, see [Bus.Key].
	Principals []agentbus.Principal
	// Logger is the bus's; nil: nothing is logged.
	Logger *slog.Logger
}

// A Bus is a bus that serves until its test ends. It is safe for concurrent use,
// but for the methods that end the test when they fail (Run, Calls, Charged and
// Requests), which belong to the test's goroutine.
type Bus struct {
	// URL is where it serves, http://127.0.0.1:PORT. The base URL of an OpenAI
	// client is URL + "/v1", or URL + "/agents/NAME/v1".
	URL string

	t      T
	server *server.Server
	keys   map[string]agentbus.Credential
	agents map[string]*served
}

// New starts a bus. It ends the test when the configuration has a fault.
func New(t T, c Config) *Bus {
	t.Helper()
	b := &Bus{t: t, keys: map[string]agentbus.Credential{}, agents: map[string]*served{}}
	for name, a := range c.Agents {
		b.agents[name] = a.serve(t, name)
	}
	if err := b.start(c); err != nil {
		t.Fatalf("agentbustest: %v", err)
	}
	return b
}

// Server returns the bus itself, for what a Bus has no method for: its store,
// its handler, its metrics, conversations that are followed or resumed. It must
// not be closed.
func (b *Bus) Server() *server.Server { return b.server }

// Key returns the key of a principal, as the value of an Authorization header,
// or none when there is no such principal.
func (b *Bus) Key(principal string) agentbus.Credential { return b.keys[principal] }

// Transport calls the bus in memory, without a socket, whatever the host of the
// request. Otherwise it is as URL.
func (b *Bus) Transport() http.RoundTripper { return httpx.Memory(b.server.Handler()) }

// Backend returns an agent of the bus as a caller over the network finds it, on
// the bill of a principal: a participant for a conversation that a test drives
// itself. A call whose Lineage holds a credential is sent with that in place of
// the principal's only if the principal may forward (P20).
func (b *Bus) Backend(agent, principal string) agentbus.Backend {
	backend, err := openai.New(openai.Config{URL: b.URL + "/v1", Model: agent, Key: b.keys[principal], Transport: b.Transport()})
	if err != nil {
		return agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) { return agentbus.Chunk{}, err })
	}
	return backend
}

// Ask asks an agent something, as User, in a run of its own.
func (b *Bus) Ask(ctx context.Context, agent, text string) (agentbus.Reply, error) {
	run := agentbus.NewRunID()
	call := &agentbus.Call{
		Agent: agent, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: text}},
		Lineage: agentbus.Lineage{Run: run, Turn: run.Turn(0, User), Speaker: User},
	}
	return agentbus.Collect(b.Backend(agent, User).Call(ctx, call))
}

// Run drives a conversation of Config.YAML until it halts, on the bill of User.
// It ends the test when the conversation cannot be driven; a halt is a result.
func (b *Bus) Run(name, seed string) *conversation.Result {
	b.t.Helper()
	result, err := b.Drive(b.t.Context(), server.Start{Conversation: name, Seed: seed})
	if err != nil {
		b.t.Fatalf("agentbustest: run %s: %v", name, err)
	}
	return result
}

// Drive drives a conversation as s says: under a run id of the test's, with less
// money, or one that halted before, with Resume. Without an Authorization User
// pays.
func (b *Bus) Drive(ctx context.Context, s server.Start) (*conversation.Result, error) {
	if s.Authorization.IsZero() {
		s.Authorization = b.keys[User]
	}
	for e, err := range b.server.Converse(ctx, s, nil) {
		if err != nil {
			return nil, err
		}
		if e.Result != nil {
			return e.Result, nil
		}
	}
	return nil, fmt.Errorf("conversation %s ended without a result", s.Conversation)
}

// Calls returns what the ledger holds of a run: a record of each call and each
// refusal, in the order they were made.
func (b *Bus) Calls(run agentbus.RunID) []agentbus.CallRecord {
	b.t.Helper()
	calls, err := b.server.Store().Calls(b.t.Context(), run)
	if err != nil {
		b.t.Fatalf("agentbustest: read the calls of run %s: %v", run, err)
	}
	return calls
}

// Charged returns what a payer has been charged in all.
func (b *Bus) Charged(payer agentbus.Payer) agentbus.Micros {
	b.t.Helper()
	balances, err := b.server.Store().Balances(b.t.Context(), payer)
	if err != nil {
		b.t.Fatalf("agentbustest: read the balance of %s: %v", payer, err)
	}
	var sum agentbus.Micros
	for _, balance := range balances {
		sum += balance.Charged
	}
	return sum
}

// Requests returns what an agent of Config.Agents was sent, in the order it came.
func (b *Bus) Requests(agent string) []Request {
	b.t.Helper()
	a, ok := b.agents[agent]
	if !ok {
		b.t.Fatalf("agentbustest: there is no agent %s in Config.Agents", agent)
		return nil
	}
	return a.requests()
}
