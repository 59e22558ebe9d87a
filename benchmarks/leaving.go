//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"time"

	bus "github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

const (
	leavings = 20 // callers that leave
	stopped  = 50 // agents of the run that is stopped
)

// A waiter is an agent that begins its answer and goes on until it is left. It
// tells of both.
type waiter struct {
	*httptest.Server
	called, left chan time.Time
}

func newWaiter() *waiter {
	w := &waiter{called: make(chan time.Time, stopped), left: make(chan time.Time, stopped)}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(rw, "data: {}\n\n")      // whoever is gone by now is waited for below
		_ = http.NewResponseController(rw).Flush() // likewise
		w.called <- time.Now()
		<-r.Context().Done()
		w.left <- time.Now()
	}))
	return w
}

// measureLeaving measures how long an agent is kept busy after its caller has
// left, with detaching off, and after its run was stopped (G14).
func measureLeaving(ctx context.Context, dir string, r *report) (err error) {
	agent := newWaiter()
	defer agent.Close()
	text := fmt.Sprintf("store: {url: %q}\nadmin: {listen: ''}\nlisten: 127.0.0.1:0\ndrain_timeout: 1s\nagents: {w: {kind: openai, url: %q, detach: off}}\n",
		"sqlite:"+filepath.Join(dir, "leaving.db"), agent.URL+"/v1")
	c, _, err := config.Parse("leaving", []byte(text), config.Source{})
	if err != nil {
		return err
	}
	s, err := server.New(ctx, server.Config{Config: c, Keys: []identity.StaticKey{{Principal: bus.Principal{ID: "bench"}, Secret: bus.NewCredential(benchKey)}}})
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // nothing of it is kept
	l, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- s.Serve(serving, l) }()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
	}()
	url := "http://" + l.Addr().String() + "/v1/chat/completions"
	for range leavings {
		took, err := leaveOnce(ctx, url, agent)
		if err != nil {
			return err
		}
		r.add("caller leaves, detach off: until the agent is left", "ms", took.Seconds()*1e3)
	}
	took, err := stopMany(ctx, url, agent, s)
	r.add(fmt.Sprintf("stop of a run of %d agents: until all are left", stopped), "seconds", took.Seconds())
	return err
}

// leaveOnce calls the agent and leaves, and returns how long the agent took to
// notice.
func leaveOnce(ctx context.Context, url string, agent *waiter) (time.Duration, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	over := make(chan struct{})
	go func() {
		defer close(over)
		ask(ctx, url, "")
	}()
	<-agent.called
	began := time.Now()
	leave()
	<-over
	return (<-agent.left).Sub(began), nil
}

// stopMany calls the agent many times in one run, stops the run, and returns how
// long it took until the agent was left by the last.
func stopMany(ctx context.Context, url string, agent *waiter, s *server.Server) (took time.Duration, err error) {
	var callers sync.WaitGroup
	for i := range stopped {
		callers.Go(func() { ask(ctx, url, bus.RunID("stopped").Turn(i, "w")) })
	}
	for range stopped {
		<-agent.called
	}
	began := time.Now()
	_, err = s.Stop(ctx, "stopped", "bench")
	for range stopped {
		took = max(took, (<-agent.left).Sub(began))
	}
	callers.Wait()
	return took, err
}

// ask calls the agent and reads its answer, until ctx ends.
func ask(ctx context.Context, url string, turn bus.TurnID) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"model":"w","stream":true,"messages":[]}`))
	if err != nil {
		return
	}
	r.Header.Set("Authorization", "Bearer "+benchKey)
	if turn != "" {
		r.Header.Set(bus.HeaderRunID, "stopped")
		r.Header.Set(bus.HeaderTurnID, string(turn))
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()               //nolint:errcheck // it is cut
	_, _ = io.Copy(io.Discard, resp.Body) // until it is cut
}
