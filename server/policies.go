package server

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/policy"
	"github.com/agentbus/agentbus/server/config"
)

// A guarded is a participant and the breaker it is to have. What differs in any
// of it has a breaker of its own.
type guarded struct {
	conversation, slug string
	failures           int
	cooldown           time.Duration
}

// buildBreakers makes the breakers of the configuration, one a participant, for
// all its runs (R12). One that was there before stays as it is: whether an agent
// answers has nothing to do with a reload.
func (s *wiring) buildBreakers() {
	var before map[guarded]*policy.Breaker
	if w := s.now(); w != nil {
		before = w.breakers
	}
	s.breakers = map[guarded]*policy.Breaker{}
	for name, def := range s.cfg.Conversations {
		for i := range def.Participants {
			g, ok := breakerOf(name, def.Participants[i].Slug, def.PolicyOf(i))
			if !ok {
				continue
			}
			if s.breakers[g] = before[g]; s.breakers[g] == nil {
				s.breakers[g] = s.breaker(g, def.Participants[i].Agent)
			}
		}
	}
}

// breaker makes a breaker that logs its changes.
func (s *Server) breaker(g guarded, agent string) *policy.Breaker {
	return policy.NewBreaker(policy.BreakerConfig{
		Name: agent, Failures: g.failures, Cooldown: g.cooldown,
		Changed: func(state string) {
			s.log.Warn("breaker changed", slog.String("conversation", g.conversation), slog.String("agent", agent), slog.String("state", state))
		},
	})
}

// breakerOf returns which breaker a participant has, if it has one.
func breakerOf(conversation, slug string, p config.CallPolicy) (g guarded, has bool) {
	return guarded{conversation, slug, *p.Breaker.Failures, *p.Breaker.Cooldown}, *p.Breaker.Failures > 0
}

// policyOf returns what bounds the calls of the i-th participant of a
// conversation.
func (s *wiring) policyOf(conversation string, def *config.Conversation, i int) policy.Policy {
	c := def.PolicyOf(i)
	p := policy.Policy{TurnTimeout: *c.TurnTimeout, AttemptTimeout: *c.AttemptTimeout}
	if *c.Retries > 0 {
		p.Retry = &policy.Retry{Attempts: 1 + *c.Retries, Base: *c.Backoff.Base, Max: *c.Backoff.Max}
	}
	if g, ok := breakerOf(conversation, def.Participants[i].Slug, c); ok {
		p.Breaker = s.breakers[g]
	}
	return p
}

// ownBackoff takes out of a failure the second that this bus asks callers to wait
// who do not say how long they would: a driver of the bus has a backoff. What an
// agent asks for stays.
func ownBackoff(b agentbus.Backend) agentbus.Backend {
	return agentbus.BackendFunc(func(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			for chunk, err := range b.Call(ctx, c) {
				if err != nil {
					err = withoutDefault(err)
				}
				if !yield(chunk, err) {
					return
				}
			}
		}
	})
}

func withoutDefault(err error) error {
	e, ours := errors.AsType[*agentbus.Error](err)
	if !ours || e.RetryAfter != httpx.DefaultRetryAfter || e.Status != e.Code.Status() ||
		e.Code != agentbus.CodeAgentUnavailable && e.Code != agentbus.CodeDeadlineExceeded {
		return err
	}
	own := *e
	own.RetryAfter = 0
	return &own
}

// approvalOf has a human approve the turns of the i-th participant of a
// conversation before it is called, where the configuration says so (R22).
func (s *wiring) approvalOf(def *config.Conversation, i int) agentbus.Middleware {
	if !def.ApprovalOf(i) {
		return func(b agentbus.Backend) agentbus.Backend { return b }
	}
	return policy.Approval{Who: def.Participants[i].Agent}.Wrap
}
