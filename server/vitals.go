package server

import (
	"context"
	"errors"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/server/config"
)

// vitals says how store, gateway and configuration do (U16).
func (s *Server) vitals(ctx context.Context) (v console.Vitals) {
	now := s.now()
	v.InFlight, v.Detached = now.gateway.InFlight(), now.gateway.Detached()
	for _, t := range now.router.Targets() {
		_, waiting := now.gateway.Busy(t.Name)
		v.Queue += waiting
	}
	p50, p99 := s.metrics.CommitLatency()
	v.Store = console.StoreState{P50: inMilliseconds(p50), P99: inMilliseconds(p99), Queue: s.queued()}
	select {
	case <-s.store.Broken():
		v.Store.Error = errBroken.Message
	default:
		if replicas, err := s.store.Replicas(ctx); err != nil {
			v.Store.Error = "the store does not answer"
		} else {
			v.Replicas, v.Store.Error = replicas, s.store.Failing()
		}
	}
	v.Config = s.configState()
	return v
}

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// configState says whether the configuration in force is the file's, and if not
// what is wrong with the file (G30).
func (s *Server) configState() console.ConfigState {
	last, tried := s.LastReload()
	c := console.ConfigState{Valid: last.Err == nil, Waiting: last.Waiting}
	if !tried {
		return c
	}
	c.Read = last.At.UTC()
	faulty, ok := errors.AsType[*config.Error](last.Err)
	switch {
	case last.Err == nil:
	case ok:
		for _, f := range faulty.Faults {
			c.Faults = append(c.Faults, console.Fault{Line: f.Line, Key: f.Key, Problem: f.Problem, Fix: f.Fix})
		}
	default:
		c.Faults = []console.Fault{{Problem: last.Err.Error()}}
	}
	return c
}

// caps returns the budgets of money of a payer, whoever calls (U13).
func (s *Server) caps(payer agentbus.Payer, at time.Time) (all []admin.Cap) {
	for _, b := range s.now().gateway.BudgetsOf(payer, at) {
		all = append(all, admin.Cap{Account: b.Account, Period: string(b.Period), Ends: b.Ends, Strict: b.Strict, Limit: b.Limit})
	}
	return all
}
