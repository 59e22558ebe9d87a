package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/openwop"
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
	Run          agentbus.RunID   // of a top-level run; "": minted
	MaxTurns     int              // 0: the configuration's, or 10 for peers
	Budget       *agentbus.Micros // nil: the configuration's
	Timeout      time.Duration    // 0: none
	// Authorization is the origin's credential; none: LocalPayer pays.
	Authorization agentbus.Credential
	// Resume goes on with a run that was driven before; only Run, Budget,
	// Authorization, Timeout and Force are looked at.
	Resume bool
	Force  bool // resume with another definition or seed (R15)
	// OnHalt is what an error, or a budget that is used up, does; "": as the
	// configuration says.
	OnHalt conversation.OnHalt
	// Reasoning is how much of what models thought is told; "": a summary (E25).
	Reasoning string
	// Threshold is the confidence below which a decision is asked about; nil:
	// agentbus.DefaultThreshold (E30).
	Threshold *float64
	// Started is how the run was asked for, as its first event tells.
	Started agentbus.RunStarted
	// Overrides are in place of what is configured; a run that is forked without
	// Started keeps those of its source (E7).
	Overrides openwop.Overrides
	// From forks another run (R23): the conversation and its seed are that one's,
	// with the definition of today; Run is the new one's id. nil: a run of its own.
	From *Fork
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
	Deadline     time.Time        `json:"deadline,omitzero"`    // for workers: who resumes by hand sets another
	Timeout      time.Duration    `json:"timeout_ns,omitempty"` // the longest that it was given
	From         *source          `json:"from,omitempty"`       // of a fork
	// Ask are those whom what started it mentions, where mentions decide; nil: all.
	Ask []agentbus.Speaker `json:"ask,omitempty"`

	OnHalt    conversation.OnHalt  `json:"on_halt,omitempty"`
	Reasoning string               `json:"reasoning,omitempty"`
	Threshold *float64             `json:"threshold,omitempty"` // of confidences (E30)
	Started   *agentbus.RunStarted `json:"started,omitempty"`   // how it was asked for over the event wire
	Overrides *openwop.Overrides   `json:"overrides,omitempty"` // with Started
}

// tell sets in o what the events of its run tell beside what happens.
func (sp *spec) tell(o *conversation.Options) {
	o.Reasoning, o.Threshold, o.Timeout = sp.Reasoning, sp.Threshold, sp.Timeout
	if sp.Started != nil {
		o.Started = *sp.Started
	}
}

// Converse drives a conversation here: its agents are called through this bus's
// own gateway, in memory. The events are those of [conversation.Stream]. key is
// asked for the keys of peers when a run of theirs is resumed.
//
// A run that somebody pays for and that is resumed without Authorization goes on
// with its sealed credential, or halts with [agentbus.HaltWaitingAuth] (R18).
func (s *Server) Converse(ctx context.Context, st Start, key func(env string) agentbus.Credential) iter.Seq2[conversation.Event, error] {
	return func(yield func(conversation.Event, error) bool) {
		c, o, err := s.now().prepare(ctx, &st, key)
		if err == nil && !s.driven.begin(o.Run) {
			err = driven(o.Run, s.owner)
		}
		if err != nil {
			yield(conversation.Event{}, err)
			return
		}
		defer s.driven.end(o.Run)
		s.drive(ctx, c, o)(yield)
	}
}

// Submit begins a run and leaves it to the workers of whichever bus serves over
// this store (R19): one with the same conversation in its configuration, and,
// for a run with Authorization, with the same sealing key.
func (s *Server) Submit(ctx context.Context, st Start) (agentbus.RunID, error) {
	if st.Resume || st.Peers != nil {
		return "", &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "only a new run of a configured conversation can be left to a bus",
			Explain: &agentbus.Explain{Rule: "R19", Next: "configure the agents and the conversation, or drive it here"},
		}
	}
	c, o, err := s.now().prepare(ctx, &st, nil)
	if err != nil {
		return "", err
	}
	if o.Sealed == nil && !st.Authorization.IsZero() {
		return "", &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "nobody else could go on with the run: its credential is not stored without a sealing key",
			Explain: &agentbus.Explain{Rule: "R18", Next: "set sealing.key_file or sealing.key_env, or drive it here"},
		}
	}
	return conversation.Submit(ctx, c, o)
}

// options returns the options of every run that is driven here.
func (s *wiring) options(run agentbus.RunID) conversation.Options {
	return conversation.Options{
		Run: run, Payer: LocalPayer, Journal: s.store, Runs: s.Runs(), Owner: s.owner, TTL: s.cfg.Workers.Lease, MaxDepth: s.cfg.Limits.MaxDepth,
		MaxHops: s.maxHops(), NoLegacyParent: !s.cfg.Lineage.LegacyParentFallback, AskTimeout: s.cfg.Interrupts.Timeout,
		NoEscalation: s.cfg.Escalation == config.EscalationOff, StopReason: s.store.StopReason,
	}
}

func (s *wiring) prepare(ctx context.Context, st *Start, key func(string) agentbus.Credential) (c conversation.Conversation, o conversation.Options, err error) {
	if st.Run == "" {
		st.Run = agentbus.NewRunID()
	}
	o = s.options(st.Run)
	o.Seed, o.Force = st.Seed, st.Force
	if !st.Authorization.IsZero() {
		p, err := s.identity.Identify(ctx, st.Authorization)
		if err != nil {
			return c, o, fmt.Errorf("identify the payer: %w", err)
		}
		o.Payer, o.Lineage.Auth = agentbus.Payer(p.ID), st.Authorization
	}
	if st.Timeout > 0 {
		o.Deadline = time.Now().Add(st.Timeout)
	}
	sp := st.spec(o.Deadline)
	sp.Ask = s.mentioned(st.Conversation, st.Seed)
	switch {
	case st.Resume:
		sp, err = s.resumed(ctx, st, &o)
	case st.From != nil:
		begun := sp
		if sp, o.Seed, err = s.forked(ctx, st.From); err == nil {
			err = sp.branch(&begun)
		}
	}
	if err != nil {
		return c, o, err
	}
	if st.Resume || st.From != nil {
		sp.again(st, key)
	}
	if o.Spec, err = json.Marshal(sp); err != nil {
		return c, o, err
	}
	sp.tell(&o)
	o.Redact = s.redacting(sp.Peers, o.Lineage.Auth)
	if o.Sealed, err = s.seal(agentbus.ExecutionID(o.Run), st.Authorization); err != nil {
		return c, o, err
	}
	c, err = s.conversation(sp)
	return c, o, err
}

// spec is how a new run of st is built, whose time is up at deadline.
func (st *Start) spec(deadline time.Time) spec {
	sp := spec{
		Conversation: st.Conversation, Peers: st.Peers, MaxTurns: st.MaxTurns, Budget: st.Budget, Deadline: deadline, OnHalt: st.OnHalt, Reasoning: st.Reasoning,
		Threshold: st.Threshold, Timeout: st.Timeout,
	}
	if st.Started.Transport != "" {
		sp.Started, sp.Overrides = &st.Started, &st.Overrides
	}
	return sp
}

// branch makes sp, of the source of a fork, that of the fork, which was asked for as
// begun. The turns that it keeps were asked with the prompts of the source.
func (sp *spec) branch(begun *spec) error {
	was := sp.Overrides
	sp.Deadline, sp.Timeout, sp.OnHalt, sp.Reasoning, sp.Threshold, sp.Started = begun.Deadline, begun.Timeout, begun.OnHalt, begun.Reasoning, begun.Threshold, begun.Started
	if begun.Budget != nil {
		sp.Budget = begun.Budget
	}
	if begun.Overrides == nil {
		return nil
	}
	sp.Overrides = begun.Overrides
	if was == nil {
		was = &openwop.Overrides{}
	}
	if sp.From.Turns > 0 && !maps.Equal(was.Prompts, begun.Overrides.Prompts) {
		return notOverridden("promptOverrides", nil, "the turns that the branch keeps were asked with other prompts")
	}
	return nil
}

// resumed returns how the conversation of a run was built, and sets in o who
// pays for it.
func (s *wiring) resumed(ctx context.Context, st *Start, o *conversation.Options) (sp spec, err error) {
	s.expire(ctx) // what nobody decided in time is denied, also where no bus serves
	e, found, err := s.store.Execution(ctx, agentbus.ExecutionID(st.Run))
	if err != nil {
		return sp, err
	}
	if !found {
		return sp, notDriven(st.Run)
	}
	if err := json.Unmarshal(e.Spec, &sp); err != nil {
		return sp, fmt.Errorf("run %s was not begun by this program: %w", st.Run, err)
	}
	if e.Payer != o.Payer {
		if !st.Authorization.IsZero() || e.State == agentbus.RunDone {
			return sp, &agentbus.Error{
				Code: agentbus.CodeForbidden, Message: "run " + string(st.Run) + " is paid by " + string(e.Payer) + ", and only who pays for it may go on with it",
				Explain: &agentbus.Explain{Rule: "R18", Observed: string(o.Payer), Next: "set AGENTBUS_TOKEN to a key of " + string(e.Payer) + " and resume again"},
			}
		}
		o.Payer = e.Payer
		if err := s.credit(ctx, &e, o); err != nil {
			return sp, err
		}
	}
	return sp, nil
}

// again adds to a stored spec what is not stored, or is said anew.
func (sp *spec) again(st *Start, key func(string) agentbus.Credential) {
	if st.Budget != nil {
		sp.Budget = st.Budget
	}
	sp.Timeout = max(sp.Timeout, st.Timeout)
	for i := range sp.Peers {
		sp.Peers[i].Key = key(sp.Peers[i].KeyEnv)
	}
}

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
		}
		if a := s.cfg.Agents[p.Agent]; a.MaxCostUSD != nil {
			part.MaxCost = *a.MaxCostUSD
		}
		c.Participants = append(c.Participants, part)
	}
	return c, errors.Join(faults...)
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

// conversationAgent makes a configured conversation callable as an agent: where
// mentions decide who is asked, those of the last message (C17).
func (s *wiring) conversationAgent(name string) (agentbus.Backend, error) {
	all, err := s.conversationOf(spec{Conversation: name})
	if err != nil || !s.cfg.Conversations[name].Mentions {
		return all, err
	}
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		last := ""
		if n := len(c.Messages); n > 0 {
			last = c.Messages[n-1].Content
		}
		ask := s.mentioned(name, last)
		if ask == nil {
			return all.Call(ctx, c)
		}
		some, err := s.conversationOf(spec{Conversation: name, Ask: ask})
		if err != nil {
			return func(yield func(agentbus.Chunk, error) bool) { yield(agentbus.Chunk{}, err) }
		}
		return some.Call(ctx, c)
	}), nil
}

// conversationOf makes a backend of a conversation.
func (s *wiring) conversationOf(sp spec) (agentbus.Backend, error) {
	c, err := s.conversation(sp)
	if err != nil {
		return nil, err
	}
	stored, err := json.Marshal(sp)
	if err != nil {
		return nil, err
	}
	return conversation.Backend(conversation.BackendConfig{
		Conversation: c, Journal: s.store, Runs: s.Runs(), Owner: s.owner, TTL: s.cfg.Workers.Lease, Spec: stored, MaxDepth: s.cfg.Limits.MaxDepth,
		MaxHops: s.maxHops(), NoLegacyParent: !s.cfg.Lineage.LegacyParentFallback, AskTimeout: s.cfg.Interrupts.Timeout,
		NoEscalation: s.cfg.Escalation == config.EscalationOff,
		Redact:       func(forwarded agentbus.Credential) conversation.Redactor { return s.redacting(nil, forwarded) },
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
type takeover struct {
	Store

	alive func(owner string) bool
}

// Open takes a lease over from an owner that is certainly dead, and names one
// that is alive.
func (t takeover) Open(ctx context.Context, e agentbus.Execution, claim agentbus.Claim) (agentbus.Execution, error) {
	stored, err := t.Store.Open(ctx, e, claim)
	if agentbus.CodeOf(err) != agentbus.CodeRunConflict || stored.Lease.Owner == "" {
		return stored, err
	}
	if !t.alive(stored.Lease.Owner) {
		claim.TakeOver = stored.Lease.Epoch
		return t.Store.Open(ctx, e, claim)
	}
	return stored, driven(agentbus.RunID(e.ID), stored.Lease.Owner)
}

// driven refuses to drive a run that another driver has (R17).
func driven(run agentbus.RunID, owner string) error {
	return &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: "run " + string(run) + " is being driven by " + processOf(owner),
		Explain: &agentbus.Explain{
			Rule: "R17", Observed: owner,
			Next: "watch it with agentbus trace " + string(run) + "; it can be resumed when that process has ended, or has not renewed its lease",
		},
	}
}
