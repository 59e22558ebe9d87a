package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/openai"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// benchAgent is the name of the agent of a bus of our own.
const benchAgent = "bench"

// ownBus starts an agent that answers at once and a bus in front of it, both on
// the loopback of this machine. The store is on the disk of the configured one,
// in a folder of its own that is removed in the end.
func (v *benchVerb) ownBus(ctx context.Context, a *app, l *lab) (err error) {
	a.storeOnly = true
	configured, err := a.load()
	if err != nil {
		return err
	}
	if l.dir, err = os.MkdirTemp(filepath.Dir(configured.Store.SQLite), ".agentbus-bench-"); err != nil {
		return &failure{exit: exitFailed, what: "there is no place for a store", why: cause(err), next: "name one that this user may write to: AGENTBUS_STORE_URL=sqlite:PATH"}
	}
	a.tune()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it goes on until it is closed, so that calls end in order
	var running sync.WaitGroup
	var s *server.Server
	l.close = func() {
		l.transport.CloseIdleConnections()
		cancel()
		running.Wait()
		if s != nil {
			s.Close() //nolint:errcheck // it is thrown away
		}
		os.RemoveAll(l.dir) //nolint:errcheck // a folder that is left behind says by its name whose it was
	}
	if s, err = v.startBus(ctx, l, &running); err != nil {
		l.close()
		l.close = func() {}
	}
	return err
}

func (v *benchVerb) startBus(ctx context.Context, l *lab, running *sync.WaitGroup) (*server.Server, error) {
	answer := agentbus.Answer(func(context.Context, *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: "pong", Model: benchAgent, Finish: "stop", Usage: &agentbus.Usage{InputTokens: 1, OutputTokens: 1}}, nil
	})
	agentURL, err := serveAgent(ctx, openai.Handler(openai.HandlerConfig{Backend: answer}), running)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("store: {url: %q}\ndrain_timeout: 1s\nagents: {%s: {kind: openai, url: %q, price: {call: 0.001}}}\n", "sqlite:"+filepath.Join(l.dir, "bus.db"), benchAgent, agentURL)
	c, _, err := config.Parse("bench", []byte(text), config.Source{Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		return nil, err
	}
	caller := agentbus.Principal{ID: benchAgent, Role: agentbus.PrincipalUser}
	secret, _ := identity.NewKey(caller, time.Now())
	s, err := server.New(ctx, server.Config{Config: c, Version: benchAgent, Keys: []identity.StaticKey{{Principal: caller, Secret: secret}}})
	if err != nil {
		return nil, err
	}
	front, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return s, err
	}
	running.Go(func() { s.Serve(ctx, front) }) //nolint:errcheck // calls say when it fails
	var faults [2]error
	l.bus, faults[0] = v.backend(l, "http://"+front.Addr().String()+"/v1", benchAgent, bearer(secret))
	l.direct, faults[1] = v.backend(l, agentURL, benchAgent, agentbus.Credential{})
	return s, errors.Join(faults[:]...)
}
