package server

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/server/config"
)

// conversation builds the conversation that sp describes.
func (s *wiring) conversation(sp spec) (conversation.Conversation, error) {
	c, err := s.defined(sp)
	if err == nil && sp.From != nil {
		c = conversation.Fork(c, conversation.Source{Execution: sp.From.Execution, Turns: sp.From.Turns, Origin: sp.From.Origin, Journal: s.store})
	}
	return c, err
}

func (s *wiring) defined(sp spec) (conversation.Conversation, error) {
	if sp.Peers != nil {
		return s.peers(sp)
	}
	def, ok := s.cfg.Conversations[sp.Conversation]
	if !ok {
		names := keys(s.cfg.Conversations)
		next := "name one of its conversations (" + strings.Join(names, ", ") + "), or give agents with --agent"
		if len(names) == 0 {
			next = "there is none yet: describe one below conversations, as in what agentbus init writes, or give agents with --agent"
		}
		return conversation.Conversation{}, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "there is no conversation " + sp.Conversation + " in the configuration",
			Explain: &agentbus.Explain{Supported: names, Next: next},
		}
	}
	c, err := s.configured(sp.Conversation, def)
	if f, ok := c.Plan.(conversation.FanOut); ok && sp.Ask != nil {
		f.Ask = sp.Ask
		c.Plan = f
	}
	if sp.MaxTurns > 0 {
		c.MaxTurns = sp.MaxTurns
	}
	if sp.Budget != nil && (sp.Started == nil || c.Budget == nil || *sp.Budget < *c.Budget) { // who asks over the wire cannot raise it
		c.Budget = sp.Budget
	}
	if err == nil && sp.Overrides != nil {
		err = s.override(&c, &def, sp.Overrides)
	}
	c.OnHalt = cmp.Or(sp.OnHalt, c.OnHalt)
	return c, err
}

// ref is who an agent is on the event wire, where that is not what its speaker
// says: one that speaks A2A is that of another host (E21).
func (s *wiring) ref(agent string) agentbus.AgentRef {
	a := s.cfg.Agents[agent]
	if a.Kind != config.KindA2A {
		return agentbus.AgentRef{}
	}
	base := a.URL
	if base == "" && len(a.URLs) > 0 {
		base = a.URLs[0]
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return agentbus.AgentRef{}
	}
	return agentbus.AgentRef{AgentID: agentbus.PeerAgent(u.Host, agent)}
}

func keys[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *wiring) configured(name string, def config.Conversation) (conversation.Conversation, error) {
	c := conversation.Conversation{
		Name: name, MaxTurns: def.MaxTurns, Budget: def.BudgetUSD, HaltContains: def.Halt.Contains,
		MaxWidth: s.cfg.Limits.MaxWidth, OnHalt: conversation.OnHalt(def.OnHalt), Plan: s.plan(&def),
	}
	var faults []error
	speakers := def.Speakers()
	for i, p := range def.Participants {
		b, err := s.agent(p.Agent)
		faults = append(faults, err)
		part := conversation.Participant{
			Name: agentbus.Speaker(speakers[i]), Slug: p.Slug, Label: p.Label, Agent: p.Agent, Ref: s.ref(p.Agent),
			Backend: agentbus.Wrap(b, s.approvalOf(&def, i), s.policyOf(name, &def, i).Wrap, ownBackoff, marked("conversation:"+name, p.Agent, p.Auth == config.AuthAgentOwned), calling),
			Auth:    conversation.AuthMode(p.Auth), Tools: s.tools(p.Agent),
			Decides: p.Decides && def.Plan != config.PlanModerator, // a moderator does by its plan
			MaxCost: mostOfTurn(s.cfg.Agents[p.Agent]),
		}
		c.Participants = append(c.Participants, part)
	}
	return c, errors.Join(faults...)
}

// mostOfTurn returns the most that a turn of an agent can cost (R8); 0: it is not
// known before the turn, as with every price of tokens, since a turn bounds no output.
func mostOfTurn(a config.Agent) agentbus.Micros {
	switch {
	case a.MaxCostUSD != nil:
		return *a.MaxCostUSD
	case a.UsageCost || a.Price == nil || a.Price.Input+a.Price.Cached+a.Price.Output > 0:
		return 0
	}
	return a.Price.Call
}

// tools are those that an agent may call; nil: it runs its own, or is no model.
func (s *wiring) tools(agent string) []string {
	a := s.cfg.Agents[agent]
	switch {
	case a.Kind != config.KindOpenAI:
		return nil
	case a.Tools != nil:
		return a.Tools
	}
	return append([]string{}, s.cfg.Tools.Default...)
}

// plan returns the plan of a configured conversation; nil is the default one.
func (s *wiring) plan(def *config.Conversation) conversation.Plan {
	names := func(but string) (all []agentbus.Speaker) {
		for _, name := range def.Speakers() {
			if name != but {
				all = append(all, agentbus.Speaker(name))
			}
		}
		return all
	}
	switch def.Plan {
	case config.PlanRoundRobin:
		return conversation.RoundRobin(names(""))
	case config.PlanRelay:
		return conversation.Relay(s.peersOf(def))
	case config.PlanModerator:
		return conversation.Moderator{Decides: agentbus.Speaker(def.Moderator), Others: names(def.Moderator)}
	case config.PlanFanOut:
		return conversation.FanOut{Ask: names(def.Synthesizer), Join: conversation.Join(def.Join), Synthesizer: agentbus.Speaker(def.Synthesizer)}
	case config.PlanAlternate:
	}
	return nil
}

// peersOf returns the participants of a conversation as others mention them.
func (s *wiring) peersOf(def *config.Conversation) (all []conversation.Peer) {
	for i, name := range def.Speakers() {
		agent := def.Participants[i].Agent
		all = append(all, conversation.Peer{Speaker: agentbus.Speaker(name), Agent: agent, Address: s.cfg.Agents[agent].At})
	}
	return all
}

// mentioned returns whom a text asks of a conversation whose mentions decide that;
// nil: all.
func (s *wiring) mentioned(name, text string) []agentbus.Speaker {
	def := s.cfg.Conversations[name]
	if !def.Mentions {
		return nil
	}
	peers := slices.DeleteFunc(s.peersOf(&def), func(p conversation.Peer) bool { return string(p.Speaker) == def.Synthesizer })
	return conversation.Mentioned(text, peers)
}

// peers builds a conversation of agents that are not configured, and makes them
// known to the gateway.
func (s *wiring) peers(sp spec) (conversation.Conversation, error) {
	def := config.Conversation{MaxTurns: sp.MaxTurns, BudgetUSD: sp.Budget, CallPolicy: config.DefaultCallPolicy()}
	if def.MaxTurns == 0 {
		def.MaxTurns = defaultMaxTurns
	}
	for _, p := range sp.Peers {
		a := config.Agent{Kind: config.KindOpenAI, URL: p.URL, Model: p.Model, Authorization: p.Key}
		if err := s.router.add(p.Name, func() (*gateway.Target, error) { return s.target(p.Name, a) }); err != nil {
			return conversation.Conversation{}, err
		}
		def.Participants = append(def.Participants, config.Participant{Agent: p.Name, Auth: config.AuthForwardUser})
	}
	return s.configured(sp.Conversation, def)
}

const defaultMaxTurns = 10
