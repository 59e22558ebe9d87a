package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/builtin"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/openai"
	"github.com/agentbus/agentbus/server/config"
)

// memoryURL is where this bus finds itself and the agents that live in it: in
// memory, never on a wire.
const memoryURL = "http://localhost/v1"

// buildAgents builds the agents of the configuration.
func (s *wiring) buildAgents() error {
	var targets []*gateway.Target
	aliases := map[string]*gateway.Target{}
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Agents)) {
		a := s.cfg.Agents[name]
		t, err := s.target(name, a)
		if err != nil {
			return fmt.Errorf("agent %s: %w", name, err)
		}
		targets = append(targets, t)
		for _, alias := range a.Aliases {
			aliases[alias] = t
		}
	}
	s.router.set(targets, aliases)
	return nil
}

func (s *wiring) target(name string, a config.Agent) (*gateway.Target, error) {
	t := &gateway.Target{
		Name: name, Kind: string(a.Kind), Address: a.At, Model: a.Model, Authorization: a.Authorization,
		Passthrough: a.Auth == config.AuthPassthrough, AllowPlaintext: a.AllowPlaintext,
		Header: headers(a.Headers), Secrets: secrets(a.Headers), Transport: s.agents, UsageCost: a.UsageCost, MaxCost: a.MaxCostUSD,
		Affinity: a.Affinity == config.AffinityConversation, AffinityKey: s.installKey(), NoLegacyParent: !s.cfg.Lineage.LegacyParentFallback, Eject: gateway.Eject(a.Eject), NoDetach: a.Detach == config.DetachOff,
		Concurrency: a.Concurrency, Queue: a.Queue, QueueTimeout: a.QueueTimeout,
		Kagent: a.Kagent, Tools: a.Tools, ACL: acl(a.ACL), RefuseUnknown: a.OnCrash == config.CrashRefuse,
	}
	if a.Price != nil {
		t.Price, t.Priced = agentbus.Price(*a.Price), true
	}
	if a.Kind == config.KindA2A {
		return t, errors.Join(s.a2aAgent(t, a), reach(t, a))
	}
	if a.Kind == config.KindOpenAI {
		t.Cue = true
		return t, reach(t, a)
	}
	if a.Kind == config.KindConversation && s.cfg.Conversations[a.Conversation].Plan == config.PlanFanOut {
		t.NoDetach = true // its branches end with its caller (C17)
	}
	b, err := s.local(name, a)
	if err != nil {
		return nil, err
	}
	h := openai.Handler(openai.HandlerConfig{Backend: agentbus.Wrap(b, told, called), Name: name, AnswersJSON: a.AnswersJSON, Log: s.log, MaxBody: int64(s.cfg.Limits.MaxBody)})
	t.Local, t.Transport = true, httpx.Memory(h)
	t.URL, err = url.Parse(memoryURL)
	return t, err
}

// reach tells t where the agent is.
func reach(t *gateway.Target, a config.Agent) (err error) {
	if len(a.URLs) == 0 {
		t.URL, err = url.Parse(a.URL)
		return err
	}
	for _, text := range a.URLs {
		u, err := url.Parse(text)
		if err != nil {
			return err
		}
		t.URLs = append(t.URLs, u)
	}
	return nil
}

// local builds an agent that lives in this process.
func (s *wiring) local(name string, a config.Agent) (agentbus.Backend, error) {
	switch a.Kind {
	case config.KindConversation:
		return s.conversationAgent(a.Conversation)
	case config.KindExec:
		b, err := s.program(name, a)
		if err != nil {
			return nil, err
		}
		return cued(b), nil
	default:
	}
	bus, err := s.agent(name)
	if err != nil {
		return nil, err
	}
	return builtin.New(a.Builtin, builtin.Config{Bus: agentbus.Wrap(bus, declared), States: s.store, Payer: payerOf})
}

func headers(configured map[string]agentbus.Credential) http.Header {
	h := http.Header{}
	for k, v := range configured {
		h.Set(k, v.Reveal()) //nolint:forbidigo // written into requests to the agent it was configured for (P19)
	}
	return h
}

// secretBytes is the length from which the value of a header may be a secret:
// shorter ones are words, which errors may hold by chance.
const secretBytes = 8

// secrets returns those of the configured values that may be secrets.
func secrets(configured map[string]agentbus.Credential) (found []agentbus.Credential) {
	for _, v := range configured {
		if len(v.Reveal()) >= secretBytes { //nolint:forbidigo // only its length is looked at
			found = append(found, v)
		}
	}
	return found
}

// agent returns the agent of that name as a backend behind this bus's own
// gateway: its calls pass every stage, in memory. They need the mark of
// gateway.WithInProcess in their context.
func (s *wiring) agent(name string) (agentbus.Backend, error) {
	// The gateway is looked up at the call: agents are built before it. It is that
	// of the same wiring, so that a conversation ends with the agents it began with.
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.gateway.ServeHTTP(w, r) })
	b, err := openai.New(openai.Config{URL: memoryURL, Model: name, Transport: httpx.Memory(h)})
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	return agentbus.Wrap(b, carried), nil
}

// carried tells the gateway the place of a call in its chain of agents, which no
// header has (C4), and the model that is asked for.
func carried(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		asked := *c
		asked.Model = "" // the model of a request to the bus is an agent
		if mark, ok := gateway.InProcessOf(ctx); ok {
			mark.Chain, mark.Inline, mark.Model = c.Lineage.Chain, c.Inline, c.Model
			ctx = gateway.WithInProcess(ctx, mark)
		}
		return b.Call(ctx, &asked)
	})
}

// cued tells a program its place in the chain of agents, where it is to be told
// (C9).
func cued(b agentbus.Backend) agentbus.Backend {
	told := agentbus.Cue(b)
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		if mark, _ := gateway.InProcessOf(ctx); mark.Cued {
			return told.Call(ctx, c)
		}
		return b.Call(ctx, c)
	})
}

// told gives an agent of this process the place of its call in the chain of
// agents, as the gateway found it.
func told(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		if mark, ok := gateway.InProcessOf(ctx); ok {
			c.Lineage.Chain, c.Inline = mark.Chain, mark.Inline // of this request alone: the dialect made c for it
		}
		return b.Call(ctx, c)
	})
}
