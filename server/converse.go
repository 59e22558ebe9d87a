package server

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
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

	trace openwop.Trace // its turns are called in (P1)
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
// asked for the keys of peers when a run of theirs is resumed; nil: they have none.
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
		defer s.heed(ctx)()
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
		NoEscalation: s.cfg.Escalation == config.EscalationOff, StopReason: s.store.StopReason, Events: s.store.Events,
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
		return sp, s.notOwn(ctx, st.Run)
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
	if key == nil {
		return
	}
	for i := range sp.Peers {
		sp.Peers[i].Key = key(sp.Peers[i].KeyEnv)
	}
}
