package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/server"
)

// runVerb drives a conversation.
type runVerb struct {
	First    *string        `arg:"" optional:"" complete:"conversation" name:"conversation" help:"One of the configuration. With --agent: the task, and nothing behind it."`
	Rest     []string       `arg:"" optional:"" name:"seed" help:"What it is about, in quotes."`
	Agent    []string       `sep:"none" placeholder:"URL#MODEL" help:"An agent that is not in the configuration; give two or more. URL is the base of its OpenAI-compatible API."`
	Name     []string       `sep:"none" help:"The speaker, for each --agent in order; else its model."`
	KeyEnv   string         `name:"key-env" default:"OPENAI_API_KEY" help:"Environment variable that holds the key of the agents of --agent."`
	MaxTurns *int           `name:"max-turns" placeholder:"N" help:"Turns after which it is over; else the conversation's, or 10."`
	MaxUSD   *string        `name:"max-usd" placeholder:"USD" help:"It pauses before it costs more."`
	Timeout  *time.Duration `placeholder:"10m" help:"It is over after this time."`
	Detach   bool           `help:"Print the id of the run and return; a bus that serves over the same store drives it."`
	Server   string         `placeholder:"URL" help:"A bus that serves: it drives the run, one of its conversations, paid by AGENTBUS_TOKEN. Else it is driven here."`
}

// Run drives the conversation here, over the store of the configuration, or
// follows it at a bus.
func (v *runVerb) Run(ctx context.Context, a *app) error {
	if v.Server != "" {
		return v.onServer(ctx, a)
	}
	st, err := v.start(a)
	if err != nil {
		return err
	}
	s, why, err := a.driving(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // what was acknowledged is durable already
	st.Run = agentbus.NewRunID()
	if v.Detach {
		return a.submit(ctx, s, st)
	}
	return a.converse(ctx, s, why, st)
}

// submit leaves a run to the workers of a bus.
func (a *app) submit(ctx context.Context, s *server.Server, st server.Start) error {
	run, err := s.Submit(ctx, st)
	if err != nil {
		return unknownToken(err)
	}
	if !a.JSON {
		fmt.Fprintf(a.stderr, "agentbus: a bus that serves over this store drives it (agentbus serve); see agentbus trace %s\n", run) //nolint:errcheck // nobody is left to tell
	}
	return a.answer(struct {
		Run agentbus.RunID `json:"run"`
	}{run}, string(run)+"\n")
}

func (v *runVerb) start(a *app) (st server.Start, err error) {
	st.Authorization = a.token()
	if st.MaxTurns, err = positive("--max-turns", v.MaxTurns); err != nil {
		return st, err
	}
	if st.Timeout, err = positive("--timeout", v.Timeout); err != nil {
		return st, err
	}
	if st.Budget, err = budget(v.MaxUSD); err != nil {
		return st, err
	}
	if len(v.Agent) == 0 {
		if v.First == nil || len(v.Rest) > 1 || len(v.Name) > 0 {
			return st, &failure{exit: exitUsage, what: "which conversation?", next: `agentbus run CONVERSATION "SEED", or agentbus run --agent URL#MODEL --agent URL#MODEL "TASK"`}
		}
		st.Conversation, st.Seed = *v.First, strings.Join(v.Rest, "")
		return st, nil
	}
	if v.First == nil || len(v.Rest) > 0 || len(v.Agent) < 2 || len(v.Name) > len(v.Agent) {
		return st, &failure{exit: exitUsage, what: "--agent needs two agents or more, at most as many names, and one task", next: `agentbus run --agent URL#MODEL --agent URL#MODEL "TASK"`}
	}
	st.Conversation, st.Seed = "agents", *v.First
	st.Peers, err = v.peers(a)
	return st, err
}

// positive returns the limit that a flag sets, 0 where it is not given. One that
// leaves room for nothing is no limit that somebody means (R1).
func positive[T int | time.Duration](flag string, limit *T) (T, error) {
	switch {
	case limit == nil:
		return 0, nil
	case *limit <= 0:
		return 0, &failure{exit: exitUsage, what: flag + " must be more than 0", next: "leave it out for the default"}
	}
	return *limit, nil
}

// givenRun refuses the id of no run, such as that of a variable that is not set.
func givenRun(run string) error {
	if run == "" {
		return errors.New("the id of the run is empty")
	}
	return nil
}

// budget reads --max-usd; "" is none.
func budget(usd *string) (*agentbus.Micros, error) {
	if usd == nil {
		return nil, nil //nolint:nilnil // no budget is no fault
	}
	m, err := agentbus.ParseUSD(*usd) // an empty one too: who gives none means it to be bounded
	if err != nil {
		return nil, &failure{exit: exitUsage, what: "--max-usd: " + err.Error(), next: "give an amount of dollars such as 0.50"}
	}
	return &m, nil
}

// peers reads --agent URL#MODEL.
func (v *runVerb) peers(a *app) ([]server.Peer, error) {
	var peers []server.Peer
	for i, given := range v.Agent {
		base, model, ok := strings.Cut(given, "#")
		u, err := url.Parse(base)
		if !ok || model == "" || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			return nil, &failure{exit: exitUsage, what: fmt.Sprintf("--agent number %d is not URL#MODEL", i+1), next: "such as --agent http://127.0.0.1:9001/v1#gpt-x; its key goes into the variable of --key-env"}
		}
		p := server.Peer{Name: model, URL: strings.TrimSuffix(base, "/"), Model: model, KeyEnv: v.KeyEnv, Key: a.key(v.KeyEnv)}
		if i < len(v.Name) {
			p.Name = v.Name[i]
		}
		for _, q := range peers {
			if agentbus.Speaker(q.Name).Slug() == agentbus.Speaker(p.Name).Slug() {
				return nil, &failure{exit: exitUsage, what: fmt.Sprintf("two agents are called %s and %s, which is one name in turn ids", q.Name, p.Name), next: "give each a name of its own: --name NAME for each --agent, in order"}
			}
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// token is the origin's credential, for those who let another principal pay.
func (a *app) token() agentbus.Credential { return a.key("AGENTBUS_TOKEN") }

// key returns the Authorization value of the key in a variable; none when it is
// not set.
func (a *app) key(env string) agentbus.Credential {
	if v, _ := a.env(env); v != "" {
		return agentbus.NewCredential("Bearer " + v)
	}
	return agentbus.Credential{}
}

// resumeVerb goes on with a run.
type resumeVerb struct {
	ID      string         `arg:"" complete:"run" name:"run" help:"The run."`
	Force   bool           `help:"Resume although the conversation has changed since."`
	MaxUSD  *string        `name:"max-usd" placeholder:"USD" help:"It pauses before it costs more, all in all; else as it was begun."`
	Timeout *time.Duration `placeholder:"10m" help:"It is over after this time."`
}

// Validate refuses no id.
func (v *resumeVerb) Validate() error { return givenRun(v.ID) }

// Run resumes: it drives the run again, and the turns that are done stand.
func (v *resumeVerb) Run(ctx context.Context, a *app) error {
	limit, err := budget(v.MaxUSD)
	if err != nil {
		return err
	}
	timeout, err := positive("--timeout", v.Timeout)
	if err != nil {
		return err
	}
	s, why, err := a.driving(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // what was acknowledged is durable already
	return a.converse(ctx, s, why, server.Start{Run: agentbus.RunID(v.ID), Authorization: a.token(), Budget: limit, Timeout: timeout, Resume: true, Force: v.Force})
}

// driving builds the bus for a verb that drives a conversation.
func (a *app) driving(ctx context.Context) (*server.Server, reasons, error) {
	why := newReasons(slog.NewTextHandler(a.stderr, nil))
	c, err := a.load()
	if err != nil {
		return nil, why, err
	}
	s, err := a.open(ctx, server.Config{Config: c, Logger: slog.New(why)})
	return s, why, err
}

// converse drives a conversation, shows it, and ends with the error that its
// halt is.
func (a *app) converse(ctx context.Context, s *server.Server, why reasons, st server.Start) error {
	show, stop := a.shower(ctx, s, st)
	leave := "agentbus: left; go on later with: agentbus resume " + operand(st.Run)
	a.parting.Store(&leave)
	defer a.parting.Store(nil)
	defer context.AfterFunc(ctx, func() {
		if !a.JSON {
			show.note("agentbus: stopping; press Ctrl-C again to leave at once; go on later with: agentbus resume " + operand(st.Run))
		}
	})()
	result, err := follow(s.Converse(ctx, st, a.key), show)
	stop()
	if agentbus.CodeOf(err) == agentbus.CodeLeaseLost {
		return &agentbus.Error{
			Code: agentbus.CodeLeaseLost, Message: "another driver goes on with run " + string(st.Run) + ": this one was silent for longer than its lease", Err: err,
			Explain: &agentbus.Explain{Rule: "R17", Next: "watch it with agentbus trace " + operand(st.Run)},
		}
	}
	if err != nil {
		return unknownToken(err)
	}
	if a.JSON {
		if err := printJSON(a.stdout, resultJSON(result)); err != nil {
			return err
		}
	}
	if err := halted(ctx, result, why.why(), ""); err != nil || a.lost == nil {
		return err
	}
	return &failure{exit: exitFailed, what: "the run is over, but what it came to could not be printed", why: cause(a.lost), next: "see agentbus trace " + operand(st.Run)}
}

// unknownToken says of a credential that nobody knows where it came from.
func unknownToken(err error) error {
	if agentbus.CodeOf(err) != agentbus.CodeUnauthenticated {
		return err
	}
	return &failure{exit: exitRefused, what: "AGENTBUS_TOKEN holds no key that this bus knows", next: "set it to a key of whoever pays; without one, " + string(server.LocalPayer) + " pays"}
}

// halted turns a halt that is no success into an error. why is the cause of the
// last attempt that failed, if any did; beside is where the run can be resumed, when
// that is not here.
func halted(ctx context.Context, r *conversation.Result, why, beside string) error {
	resume, paused := beside+"agentbus resume "+operand(r.Run), "paused: "
	if r.Halt.Failed { // by on_halt: fail
		resume, paused = "see agentbus trace "+operand(r.Run)+"; it is over, run it anew", "failed: "
	}
	switch h := &r.Halt; h.Kind {
	case agentbus.HaltBudget:
		if h.LimitTokens > 0 {
			resume = "see agentbus trace " + operand(r.Run) + "; run it anew with more tokens"
		} else if !h.Failed {
			resume = beside + "agentbus resume " + operand(r.Run, "--max-usd USD") + ", with more than that"
		}
		return &failure{exit: exitBudget, what: paused + h.String(), why: h.Reason, next: resume}
	case agentbus.HaltParticipantError:
		exit := exitAgent
		if h.Error != nil {
			if exit = exits[h.Error.Code]; exit == exitFailed || exit == exitUsage {
				exit = exitAgent
			}
		}
		next := resume
		if h.Error != nil && !h.Error.Code.Retryable() && h.Error.Explain != nil && h.Error.Explain.Next != "" {
			next = h.Error.Explain.Next + "; then " + resume
		}
		return &failure{exit: exit, what: paused + harmless(h.String()), why: harmless(why), next: next}
	case agentbus.HaltAbort:
		if h.Error != nil && h.Error.Code == agentbus.CodeRunStopped {
			return h.Error
		}
		if ctx.Err() == nil {
			return &failure{exit: exitFailed, what: "paused: " + h.String(), next: resume}
		}
		return &failure{exit: exitInterrupted, what: "paused: " + h.String(), next: resume}
	case agentbus.HaltWaiting:
		return waiting(h, resume)
	case agentbus.HaltWaitingAuth:
		return &failure{exit: exitWaiting, what: "waiting-auth: " + h.Reason, next: "set AGENTBUS_TOKEN to a key of who pays; then " + resume}
	case agentbus.HaltDeadline:
		return &failure{exit: exitFailed, what: "over: its time was up after " + plural(h.Turns, "turn"), next: "see agentbus trace " + operand(r.Run)}
	case agentbus.HaltRecursionLimit:
		return &failure{exit: exitFailed, what: "failed: " + h.String(), next: "see agentbus trace " + operand(r.Run) + "; run it anew with a higher recursionLimit"}
	case agentbus.HaltDone, agentbus.HaltMaxTurns, agentbus.HaltPredicate:
	}
	return nil
}
