package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/builtin"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/openai"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

const (
	demoUser  = "user-123"
	demoStore = "demo.db"
	demoTurns = 4
)

// A demoBus is a bus that serves, and its agents.
type demoBus struct {
	began    time.Time
	url      string
	console  string // URL of the console, which signs in whoever follows it
	server   *server.Server
	client   *http.Client
	userKey  agentbus.Credential // without a scheme; so is adminKey
	adminKey agentbus.Credential
	agents   map[string]string // name → URL
	counts   *executions
	killed   chan struct{} // closed once the driver is
	stop     func()        // ends everything and waits for it
}

// executions counts what the agents were really asked to do.
type executions struct {
	mu    sync.Mutex // guards turns
	turns map[string]int
}

func (e *executions) count(b agentbus.Backend, agent string) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		e.mu.Lock()
		e.turns[agent+" "+string(c.Lineage.Turn)+" inside "+string(c.Lineage.Parent)]++
		e.mu.Unlock()
		return b.Call(ctx, c)
	})
}

// most returns how often the turn was executed that was executed most, of the
// turns of a run.
func (e *executions) most(run agentbus.RunID) (turns, most int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for turn, n := range e.turns {
		if strings.Contains(turn, string(run)) {
			turns++
			most = max(most, n)
		}
	}
	return turns, most
}

// startDemo starts the agents, each an HTTP server, then the bus in front of
// them.
func startDemo(ctx context.Context, dir string) (*demoBus, error) {
	ctx, cancel := context.WithCancel(ctx)
	b := &demoBus{
		began: time.Now(), agents: map[string]string{}, counts: &executions{turns: map[string]int{}}, killed: make(chan struct{}),
		client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	var running sync.WaitGroup
	b.stop = func() {
		cancel()
		b.client.CloseIdleConnections()
		running.Wait()
		if b.server != nil {
			b.server.Close() //nolint:errcheck // what was acknowledged is durable already
		}
	}
	front, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		cancel()
		return nil, err
	}
	b.url = "http://" + front.Addr().String()
	keys, err := b.start(ctx, &running)
	if err == nil {
		b.server, err = newDemoServer(ctx, dir, b.agents, keys)
	}
	if err != nil {
		front.Close() //nolint:errcheck // nobody called
		b.stop()
		return nil, err
	}
	running.Go(func() { b.server.Serve(ctx, front) }) //nolint:errcheck // calls say when it fails
	if err := b.serveConsole(ctx, &running); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// serveConsole serves the console on a port of its own. The key of its URL stands
// behind the #, which browsers send to nobody.
func (b *demoBus) serveConsole(ctx context.Context, running *sync.WaitGroup) error {
	back, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return err
	}
	b.console = "http://" + back.Addr().String() + "/console/signin#key=" + b.adminKey.Reveal() //nolint:forbidigo // a key made for this demo, shown to who runs it
	running.Go(func() { b.server.ServeAdmin(ctx, back) })                                       //nolint:errcheck // pages say when it fails
	return nil
}

// start makes the keys and starts the agents.
func (b *demoBus) start(ctx context.Context, running *sync.WaitGroup) ([]identity.StaticKey, error) {
	user, agents := agentbus.Principal{ID: demoUser, Role: agentbus.PrincipalUser}, agentbus.Principal{ID: "agents", Role: agentbus.PrincipalUser, InterAgent: true}
	admin := agentbus.Principal{ID: "you", Role: agentbus.PrincipalAdmin}
	userKey, _ := identity.NewKey(user, b.began)
	agentKey, _ := identity.NewKey(agents, b.began)
	adminKey, _ := identity.NewKey(admin, b.began)
	b.userKey, b.adminKey = userKey, adminKey
	bus, err := openai.New(openai.Config{URL: b.url + "/v1", Key: bearer(agentKey)})
	if err != nil {
		return nil, err
	}
	slow, err := builtin.New(builtin.Slow, builtin.Config{Pause: 60 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	eliza, err := builtin.New(builtin.Eliza, builtin.Config{})
	if err != nil {
		return nil, err
	}
	loop, err := builtin.New(builtin.Loop, builtin.Config{Bus: bus})
	if err != nil {
		return nil, err
	}
	for name, agent := range map[string]agentbus.Backend{"researcher": b.cutOff(slow), "checker": eliza, "critic": consults("checker", bus), "loop": loop} {
		h := openai.Handler(openai.HandlerConfig{Backend: b.counts.count(agent, name)})
		if b.agents[name], err = serveAgent(ctx, h, running); err != nil {
			return nil, err
		}
	}
	return []identity.StaticKey{{Principal: user, Secret: userKey}, {Principal: agents, Secret: agentKey}, {Principal: admin, Secret: adminKey}}, nil
}

// cutOff makes an agent wait, in the middle of the turn in which the driver is to be
// killed, until it is, however long that takes.
func (b *demoBus) cutOff(agent agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			for chunk, err := range agent.Call(ctx, c) {
				if !yield(chunk, err) {
					return
				}
				if chunk.Text != "" && c.Lineage.Turn.Index(c.Lineage.Run) == killAt {
					select {
					case <-b.killed:
					case <-ctx.Done():
					}
				}
			}
		}
	})
}

func bearer(secret agentbus.Credential) agentbus.Credential {
	return agentbus.NewCredential("Bearer " + secret.Reveal()) //nolint:forbidigo // still a credential
}

// serveAgent serves an agent on a port of its own until ctx ends.
func serveAgent(ctx context.Context, h http.Handler, running *sync.WaitGroup) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return "", err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	running.Go(func() { srv.Serve(l) }) //nolint:errcheck // it ends with Close below
	running.Go(func() {
		<-ctx.Done()
		srv.Close() //nolint:errcheck // it is over
	})
	return "http://" + l.Addr().String() + "/v1", nil
}

// consults makes an agent that asks another one through the bus, one turn
// inside its own, before it answers.
func consults(whom string, bus agentbus.Backend) agentbus.Backend {
	return agentbus.Answer(func(ctx context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		l, err := c.Lineage.Next(c.Lineage.Run.Turn(0, agentbus.Speaker(whom)), agentbus.Speaker(whom))
		if err != nil {
			return agentbus.Chunk{}, err
		}
		reply, err := agentbus.Collect(bus.Call(ctx, &agentbus.Call{Lineage: l, Agent: whom, Messages: c.Messages}))
		if err != nil {
			return agentbus.Chunk{}, err
		}
		text := "The " + whom + " asks: " + reply.Text
		return agentbus.Chunk{Text: text, Usage: &agentbus.Usage{InputTokens: int64(len(c.Messages)), OutputTokens: int64(len(strings.Fields(text)))}, Model: "demo", Finish: "stop"}, nil
	})
}

// newDemoServer builds the bus of the demo from a configuration as a user would
// write it. It drives no runs: that of the demo is for the process that resumes it.
func newDemoServer(ctx context.Context, dir string, agents map[string]string, keys []identity.StaticKey) (*server.Server, error) {
	var y strings.Builder
	fmt.Fprintf(&y, "store: {url: %q}\nworkers: {max: 0}\nadmin: {content: true}\nagents:\n", "sqlite:"+filepath.Join(dir, demoStore))
	for name, url := range agents {
		fmt.Fprintf(&y, "  %s: {kind: openai, url: %q, price: {input: 0.15, output: 0.60, call: 0.001}}\n", name, url)
	}
	if len(agents) == 0 {
		y.Reset()
		fmt.Fprintf(&y, "store: {url: %q}\n", "sqlite:"+filepath.Join(dir, demoStore))
	}
	none := func(string) (string, bool) { return "", false }
	c, _, err := config.Parse("demo", []byte(y.String()), config.Source{Env: none})
	if err != nil {
		return nil, err
	}
	return server.New(ctx, server.Config{Config: c, Version: "demo", Keys: keys})
}

// openDemoStore opens the store of the demo, beside the bus that serves it.
func openDemoStore(ctx context.Context, dir string) (*server.Server, error) {
	return newDemoServer(ctx, dir, nil, nil)
}

// demoConversation is what the driver drives: two agents behind the bus.
func demoConversation(busURL string, key agentbus.Credential) (conversation.Conversation, error) {
	c := conversation.Conversation{Name: "demo", MaxTurns: demoTurns}
	var faults []error
	for _, name := range []string{"researcher", "critic"} {
		b, err := openai.New(openai.Config{URL: busURL, Model: name, Key: key})
		faults = append(faults, err)
		c.Participants = append(c.Participants, conversation.Participant{Name: agentbus.Speaker(name), Backend: b})
	}
	return c, errors.Join(faults...)
}
