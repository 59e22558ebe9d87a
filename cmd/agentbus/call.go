package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
	"github.com/agentbus/agentbus/openai"
)

// callVerb makes one call of an agent of a running bus. Inside a program that
// is an agent it is a call of the turn that the program serves.
type callVerb struct {
	Agent          string  `arg:"" complete:"agent" help:"The agent, by its name or one of its aliases."`
	Text           *string `arg:"" optional:"" help:"What to say; without it, what stands on standard input. Behind -- it may begin with -."`
	Server         string  `placeholder:"URL" help:"The bus; else AGENTBUS_URL."`
	Key            string  `placeholder:"K" help:"The Idempotency-Key: the same call with the same key is executed once. Else one of its own."`
	AllowPlaintext bool    `help:"Send the token over plain HTTP to another machine."`
}

// maxStdin is the most that is read of standard input: more than a bus takes
// unless it is told to.
const maxStdin = 64 << 20

// Run calls the agent and writes its answer as it comes.
func (v *callVerb) Run(ctx context.Context, a *app) error {
	lineage, err := a.lineageBelow()
	if err != nil {
		return err
	}
	base, err := v.base(a)
	if err != nil {
		return err
	}
	b, err := v.backend(a, base)
	if err != nil {
		return err
	}
	text, err := v.text(a)
	if err != nil {
		return err
	}
	call := &agentbus.Call{Lineage: lineage, Agent: v.Agent, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: text}}}
	show := func(s string) string { return s }
	screen := a.screen(a.stdout)
	if screen {
		show = harmless
	}
	var answer agentbus.ReplyBuilder
	for c, err := range b.Call(ctx, call) {
		if err != nil {
			return v.told(ctx, base, err)
		}
		answer.Add(c)
		if !a.JSON {
			if _, err := io.WriteString(a.stdout, show(c.Text)); err != nil {
				return err
			}
		}
	}
	reply := answer.Reply()
	end := ""
	if screen && !strings.HasSuffix(reply.Text, "\n") {
		end = "\n"
	}
	return a.answer(reply, end)
}

// told says of what the bus at base answered, or that none did, what somebody who
// typed the call can do.
func (v *callVerb) told(ctx context.Context, base string, err error) error {
	e, ok := errors.AsType[*agentbus.Error](err)
	switch {
	case !ok:
		return err
	case e.Code == agentbus.CodeAgentUnavailable && e.Status == 0 && e.Err != nil: // what a bus says itself, also in its stream, has no cause here
		return &failure{
			exit: exitAgent, what: "no bus answers, or its answer broke off", why: unreachable(e.Err),
			next: "see that it serves there: agentbus doctor; the same --key K again does not execute the call twice",
		}
	case (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Status == http.StatusNotFound) && adminAt(ctx, getPlainly, base):
		return notPublic()
	case e.Code == agentbus.CodeUnauthenticated:
		return advised(e, "set AGENTBUS_TOKEN to a key of that bus; agentbus keys create NAME makes one")
	case e.Explain != nil && e.Explain.Rule == "P24" && e.Status == 0: // it is about the way to the bus, not to the agent behind it
		return advised(e, "use https, or --allow-plaintext where nobody listens on the way")
	}
	return err
}

// advised returns e with another advice.
func advised(e *agentbus.Error, next string) error {
	told := *e
	told.Explain = &agentbus.Explain{Next: next}
	if e.Explain != nil {
		told.Explain.Rule = e.Explain.Rule
	}
	return &told
}

// base returns the URL of the bus, without /v1.
func (v *callVerb) base(a *app) (string, error) {
	url := v.Server
	if url == "" {
		url, _ = a.env(execagent.EnvURL)
	}
	if run, _ := a.env(execagent.EnvRunID); url == "" && run != "" {
		return "", &failure{exit: exitUsage, what: "there is no bus to call", why: "this program is run by a bus that cannot be reached from it", next: "run it under agentbus serve, or hand on the environment that the bus gave the program"}
	}
	if url == "" {
		return "", &failure{exit: exitUsage, what: "there is no bus to call", why: "neither --server nor " + execagent.EnvURL + " names one", next: "start one with agentbus serve, and name it: --server http://127.0.0.1:8080"}
	}
	return strings.TrimSuffix(strings.TrimRight(url, "/"), "/v1"), nil
}

// backend is the bus at base.
func (v *callVerb) backend(a *app, base string) (*openai.Backend, error) {
	key := v.Key
	if key == "" {
		key = "call-" + rand.Text()
	}
	b, err := openai.New(openai.Config{
		URL: base + "/v1", Key: a.token(),
		Header: http.Header{"Idempotency-Key": {key}}, AllowPlaintext: v.AllowPlaintext,
		Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}, // no proxy: the token is for the bus (P24)
	})
	if err != nil {
		return nil, &failure{exit: exitUsage, what: "this is no URL of a bus", why: "it " + strings.TrimPrefix(err.Error(), "openai backend: url: "), next: "write it as http://host:port, behind --server or in " + execagent.EnvURL}
	}
	return b, nil
}

func (v *callVerb) text(a *app) (string, error) {
	if v.Text != nil {
		return *v.Text, nil
	}
	b, err := io.ReadAll(io.LimitReader(a.stdin, maxStdin+1))
	if err == nil && len(b) > maxStdin {
		err = errors.New("there is too much of it")
	}
	if err != nil {
		return "", &failure{exit: exitUsage, what: "cannot read standard input", why: err.Error()}
	}
	return string(b), nil
}

// lineageBelow returns the lineage of a call that is made inside the turn that
// the environment tells of (B2): the next one of it, without a turn id, which the
// bus mints (P7). Outside of any, it is that of an origin. One that the bus would
// refuse for its depth is refused here, before anything is sent (P10).
func (a *app) lineageBelow() (agentbus.Lineage, error) {
	get := func(name string) string { v, _ := a.env(name); return v }
	depth, err := agentbus.ParseDepth(get(execagent.EnvDepth))
	if err != nil {
		return agentbus.Lineage{}, badVariable(execagent.EnvDepth, err)
	}
	served := agentbus.Lineage{
		Run: agentbus.RunID(get(execagent.EnvRunID)), Turn: agentbus.TurnID(get(execagent.EnvTurnID)), Depth: depth,
		RootContext: get(execagent.EnvRootContext), ParentContext: get(execagent.EnvParentContext), TraceParent: get(execagent.EnvTraceParent),
	}
	if served.Run == "" {
		return agentbus.Lineage{Depth: depth, TraceParent: served.TraceParent}, nil
	}
	limit := agentbus.DefaultMaxDepth
	for _, name := range []string{"CLI_BRIDGE_MAX_DEPTH", execagent.EnvMaxDepth} {
		if text := get(name); text != "" {
			if limit, err = agentbus.ParseDepth(text); err != nil || limit == 0 {
				return agentbus.Lineage{}, badVariable(name, fmt.Errorf("%q is no limit", harmless(text)))
			}
		}
	}
	next, err := served.Next(served.Run.Turn(0, "call"), "")
	if err != nil {
		return agentbus.Lineage{}, badVariable(execagent.EnvRunID, err)
	}
	next.Turn, next.Path = "", "" // the bus knows where the turn itself stands
	return next, next.CheckDepth(limit)
}

func badVariable(name string, err error) error {
	return &failure{exit: exitUsage, what: "the variable " + name + " cannot be read", why: err.Error(), next: "leave it as the bus sets it, or unset it outside of a program that the bus runs"}
}
