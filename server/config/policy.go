package config

import "time"

// A CallPolicy bounds what a turn may take (R10 to R12). A field that is nil says
// nothing: see [CallPolicy.Over].
type CallPolicy struct {
	AttemptTimeout *time.Duration `yaml:"attempt_timeout" min:"0s" doc:"Deadline of each attempt of a turn, kept even when the agent does not listen. Absent, and 0s: that of limits.call_timeout."`
	TurnTimeout    *time.Duration `yaml:"turn_timeout" min:"0s" doc:"Deadline of a turn with all its attempts and the waits between them. Absent, and 0s: none."`
	Retries        *int           `yaml:"retries" min:"0" max:"100" doc:"Further attempts of a turn, under the same turn id, after one that failed in a way that may pass: no connection, a deadline, 408, 425, 429, 500, 502, 503, 504 (R11). Absent: 2, and 0 where the agent is a conversation, whose own turns are retried."`
	Backoff        Backoff        `yaml:"backoff" doc:"How long to wait between attempts: a random part of a time that doubles with each attempt. A Retry-After of up to a minute is waited for."`
	Breaker        CallBreaker    `yaml:"breaker" doc:"When to stop calling a participant that keeps failing: its turns fail at once with circuit_open (R12)."`
}

// Backoff says how long to wait between the attempts of a turn.
type Backoff struct {
	Base *time.Duration `yaml:"base" min:"1ms" max:"1h" doc:"The longest wait before the second attempt. Absent: 250ms."`
	Max  *time.Duration `yaml:"max" min:"1ms" max:"24h" doc:"The longest wait before any attempt. Absent: 30s."`
}

// A CallBreaker says when a participant is not called for a while.
type CallBreaker struct {
	Failures *int           `yaml:"failures" min:"0" max:"1000000" doc:"Failed attempts in a row after which it opens, those of all runs of this process counted together. Absent, and 0: never."`
	Cooldown *time.Duration `yaml:"cooldown" min:"1ms" max:"24h" doc:"How long it stays open; then one call finds out. Absent: 30s."`
}

// DefaultCallPolicy is what a conversation has that says nothing: the one source
// of the defaults that the documentation of the keys names.
func DefaultCallPolicy() CallPolicy {
	return CallPolicy{
		AttemptTimeout: new(time.Duration(0)), TurnTimeout: new(time.Duration(0)), Retries: new(2),
		Backoff: Backoff{Base: new(250 * time.Millisecond), Max: new(30 * time.Second)},
		Breaker: CallBreaker{Failures: new(0), Cooldown: new(30 * time.Second)},
	}
}

// Over returns p where it says something, and base elsewhere: a participant's
// policy overrides the conversation's field by field (R13).
func (p CallPolicy) Over(base CallPolicy) CallPolicy {
	return CallPolicy{
		AttemptTimeout: first(p.AttemptTimeout, base.AttemptTimeout),
		TurnTimeout:    first(p.TurnTimeout, base.TurnTimeout),
		Retries:        first(p.Retries, base.Retries),
		Backoff:        Backoff{Base: first(p.Backoff.Base, base.Backoff.Base), Max: first(p.Backoff.Max, base.Backoff.Max)},
		Breaker:        CallBreaker{Failures: first(p.Breaker.Failures, base.Breaker.Failures), Cooldown: first(p.Breaker.Cooldown, base.Breaker.Cooldown)},
	}
}

// PolicyOf returns the policy of the i-th participant: its own over that of the
// conversation.
func (c *Conversation) PolicyOf(i int) CallPolicy {
	if own := c.Participants[i].CallPolicy; own != nil {
		return own.Over(c.CallPolicy)
	}
	return c.CallPolicy
}

func first[T any](p, base *T) *T {
	if p != nil {
		return p
	}
	return base
}
