package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/server/config"
)

// LocalPayer is billed for conversations that are driven here without a
// credential: the operator of this bus.
const LocalPayer agentbus.Payer = "local"

// A Start says which conversation to drive, and how.
type Start struct {
	// Conversation is the name of a configured one. With Peers it names the
	// conversation they have.
	Conversation string
	Peers        []Peer // agents that are not configured, in speaking order; nil: Conversation is configured
	Seed         string
	Run          agentbus.RunID   // "": minted
	MaxTurns     int              // 0: the configuration's, or 10 for peers
	Budget       *agentbus.Micros // nil: the configuration's
	Timeout      time.Duration    // 0: none
	// Authorization is the origin's credential; none: LocalPayer pays.
	Authorization agentbus.Credential
	// Resume goes on with a run that was driven before; only Run, Budget,
	// Authorization, Timeout and Force are looked at.
	Resume bool
	Force  bool // resume with another definition or seed (R15)
}

// A Peer is an agent that is not in the configuration.
type Peer struct {
	Name  string `json:"name"`
	URL   string `json:"url"`   // base of its OpenAI-compatible API
	Model string `json:"model"` // what it is asked for
	// KeyEnv names the variable that held its key: a key is stored nowhere.
	KeyEnv string              `json:"key_env,omitempty"`
	Key    agentbus.Credential `json:"-"` // its Authorization, whole; none: it is sent none
}

// A spec is how to build a conversation again: it is stored with its run.
type spec struct {
	Conversation string           `json:"conversation"`
	Peers        []Peer           `json:"peers,omitempty"`
	MaxTurns     int              `json:"max_turns,omitempty"`
	Budget       *agentbus.Micros `json:"budget_micros,omitempty"`
}

// Converse drives a conversation here: its agents are called through this bus's
// own gateway, in memory. The events are those of [conversation.Stream]. key is
// asked for the keys of peers when a run of theirs is resumed.
func (s *Server) Converse(ctx context.Context, st Start, key func(env string) agentbus.Credential) iter.Seq2[conversation.Event, error] {
	return func(yield func(conversation.Event, error) bool) {
		c, o, err := s.now().prepare(ctx, &st, key)
		if err != nil {
			yield(conversation.Event{}, err)
			return
		}
		ctx := gateway.WithInProcess(ctx, gateway.InProcess{Payer: o.Payer})
		conversation.Stream(ctx, c, o)(yield)
	}
}

func (s *wiring) prepare(ctx context.Context, st *Start, key func(string) agentbus.Credential) (c conversation.Conversation, o conversation.Options, err error) {
	o = conversation.Options{
		Seed: st.Seed, Run: st.Run, Payer: LocalPayer, Journal: s.store, Runs: s.Runs(), Owner: s.owner,
		Force: st.Force, MaxDepth: s.cfg.Limits.MaxDepth,
	}
	if !st.Authorization.IsZero() {
		p, err := s.identity.Identify(ctx, st.Authorization)
		if err != nil {
			return c, o, fmt.Errorf("identify the payer: %w", err)
		}
		o.Payer, o.Lineage.Auth = agentbus.Payer(p.ID), st.Authorization
	}
	sp := spec{Conversation: st.Conversation, Peers: st.Peers, MaxTurns: st.MaxTurns, Budget: st.Budget}
	if st.Resume {
		if sp, err = s.stored(ctx, st.Run, o.Payer); err != nil {
			return c, o, err
		}
		if st.Budget != nil {
			sp.Budget = st.Budget
		}
		for i := range sp.Peers {
			sp.Peers[i].Key = key(sp.Peers[i].KeyEnv)
		}
	}
	if st.Timeout > 0 {
		o.Deadline = time.Now().Add(st.Timeout)
	}
	if o.Spec, err = json.Marshal(sp); err != nil {
		return c, o, err
	}
	c, err = s.conversation(sp)
	return c, o, err
}

// stored returns how the conversation of a run was built.
func (s *Server) stored(ctx context.Context, run agentbus.RunID, payer agentbus.Payer) (sp spec, err error) {
	e, found, err := s.store.Execution(ctx, agentbus.ExecutionID(run))
	if err != nil {
		return sp, err
	}
	if !found {
		return sp, &agentbus.Error{
			Code: agentbus.CodeRunNotFound, Message: "no driver of this store ran " + string(run),
			Explain: &agentbus.Explain{Next: "see agentbus runs; a run without a conversation was driven elsewhere, and is resumed there"},
		}
	}
	if e.Payer != payer { // the credential is not journaled (R18)
		return sp, &agentbus.Error{
			Code: agentbus.CodeForbidden, Message: "run " + string(run) + " is paid by " + string(e.Payer) + ", and a credential is not stored with a run",
			Explain: &agentbus.Explain{Rule: "R18", Observed: string(payer), Next: "set AGENTBUS_TOKEN to a key of " + string(e.Payer) + " and resume again"},
		}
	}
	if err := json.Unmarshal(e.Spec, &sp); err != nil {
		return sp, fmt.Errorf("run %s was not begun by this program: %w", run, err)
	}
	return sp, nil
}

// conversation builds the conversation that sp describes.
func (s *wiring) conversation(sp spec) (conversation.Conversation, error) {
	if sp.Peers != nil {
		return s.peers(sp)
	}
	def, ok := s.cfg.Conversations[sp.Conversation]
	if !ok {
		names := keys(s.cfg.Conversations)
		return conversation.Conversation{}, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "there is no conversation " + sp.Conversation + " in the configuration",
			Explain: &agentbus.Explain{Supported: names, Next: "name one of its conversations (" + strings.Join(names, ", ") + "), or give agents with --agent"},
		}
	}
	c, err := s.configured(sp.Conversation, def)
	if sp.MaxTurns > 0 {
		c.MaxTurns = sp.MaxTurns
	}
	if sp.Budget != nil {
		c.Budget = sp.Budget
	}
	return c, err
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
		MaxWidth: s.cfg.Limits.MaxWidth, OnHalt: conversation.OnHalt(def.OnHalt), Plan: plan(&def),
	}
	var faults []error
	for i, p := range def.Participants {
		b, err := s.agent(p.Agent)
		faults = append(faults, err)
		part := conversation.Participant{
			Name: agentbus.Speaker(p.Agent), Slug: p.Slug, Label: p.Label, Agent: p.Agent,
			Backend: agentbus.Wrap(b, s.policyOf(name, &def, i).Wrap, ownBackoff, marked("conversation:"+name, p.Agent, p.Auth == config.AuthAgentOwned)),
			Auth:    conversation.AuthMode(p.Auth),
		}
		if a := s.cfg.Agents[p.Agent]; a.MaxCostUSD != nil {
			part.MaxCost = *a.MaxCostUSD
		}
		c.Participants = append(c.Participants, part)
	}
	return c, errors.Join(faults...)
}

// plan returns the plan of a configured conversation; nil is the default one.
func plan(def *config.Conversation) conversation.Plan {
	names := func(but string) (all []agentbus.Speaker) {
		for _, p := range def.Participants {
			if p.Agent != but {
				all = append(all, agentbus.Speaker(p.Agent))
			}
		}
		return all
	}
	switch def.Plan {
	case config.PlanRoundRobin:
		return conversation.RoundRobin(names(""))
	case config.PlanModerator:
		return conversation.Moderator{Decides: agentbus.Speaker(def.Moderator), Others: names(def.Moderator)}
	case config.PlanFanOut:
		return conversation.FanOut{Ask: names(def.Synthesizer), Join: conversation.Join(def.Join), Synthesizer: agentbus.Speaker(def.Synthesizer)}
	case config.PlanAlternate:
	}
	return nil
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

// conversationAgent makes a configured conversation callable as an agent.
func (s *wiring) conversationAgent(name string) (agentbus.Backend, error) {
	sp := spec{Conversation: name}
	c, err := s.conversation(sp)
	if err != nil {
		return nil, err
	}
	stored, err := json.Marshal(sp)
	if err != nil {
		return nil, err
	}
	return conversation.Backend(conversation.BackendConfig{
		Conversation: c, Journal: s.store, Runs: s.Runs(), Owner: s.owner, Spec: stored, MaxDepth: s.cfg.Limits.MaxDepth,
		Payer: func(ctx context.Context) agentbus.Payer {
			p, _ := gateway.InProcessOf(ctx) // the gateway has said who pays
			return p.Payer
		},
	}), nil
}

// marked tells the gateway that calls come from a driver of this process, on the
// bill of whoever the context says, or of the agent that pays for itself (P22),
// to an agent that the configuration names (G6).
func marked(caller, agent string, owned bool) agentbus.Middleware {
	return func(b agentbus.Backend) agentbus.Backend {
		return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
			mark, _ := gateway.InProcessOf(ctx)
			mark.Caller.ID, mark.AgentOwned, mark.Declared = caller, owned, true
			if owned {
				mark.Payer = agentbus.Payer("agent:" + agent)
			}
			return b.Call(gateway.WithInProcess(ctx, mark), c)
		})
	}
}

// declared tells the gateway that the configuration names whom calls go to: of
// the built-in agents, one calls itself (G6).
func declared(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		mark, _ := gateway.InProcessOf(ctx)
		mark.Declared = true
		return b.Call(gateway.WithInProcess(ctx, mark), c)
	})
}

// takeover is a store whose leases of dead processes are free at once.
type takeover struct{ Store }

// Open takes a lease over from an owner that is certainly dead.
func (t takeover) Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	stored, err := t.Store.Open(ctx, e, claim)
	if agentbus.CodeOf(err) == agentbus.CodeRunConflict && stored.Lease.Owner != "" && !alive(stored.Lease.Owner) {
		claim.TakeOver = stored.Lease.Epoch
		return t.Store.Open(ctx, e, claim)
	}
	return stored, err
}
