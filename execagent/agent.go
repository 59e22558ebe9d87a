package execagent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

// An Agent is a program that answers calls. It is safe for concurrent use; how
// many turns it has at once is for the gateway before it, and so is the depth
// of a call, which is looked at before there is a process (B6).
type Agent struct {
	config Config
	rooms  rooms
	lanes  lanes // of conversations that are served one turn at a time
	pool   pool  // of workers
	// The conversations that the program keeps itself.
	sessions sessions
}

// New returns the agent that c describes, or every fault of c at once.
func New(c Config) (*Agent, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Agent{
		config: c, rooms: rooms{root: c.Dir, tag: tagOf(c.Name), shared: c.ShareDir, age: c.DirAge},
		sessions: sessions{Session: c.Session, dir: filepath.Join(c.Dir, ".agentbus", tagOf(c.Name)), installKey: c.InstallKey, age: c.DirAge},
		pool:     pool{most: c.Workers, patience: c.WorkerIdle, workers: map[string]*worker{}, changed: make(chan struct{})},
	}, nil
}

// Call runs the program for one turn. Its answer is passed on as it is written.
//
// It fails with CodeInvalidRequest when the prompt cannot be given to the
// program; with CodeAgentUnavailable when it cannot be started, writes more
// than MaxOutput, writes what is no answer, or ends with anything but status 0,
// also when it has written a full answer; with CodeDeadlineExceeded when it
// takes longer than Timeout; with the context's error, wrapped, when ctx ends.
// In each case, as at a good end, no process of the turn is left when the
// sequence ends.
func (a *Agent) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		emit := func(c agentbus.Chunk) error {
			if !yield(c, nil) {
				return errStopped
			}
			return nil
		}
		if err := a.turn(ctx, c, emit); err != nil && !errors.Is(err, errStopped) {
			yield(agentbus.Chunk{}, err)
		}
	}
}

// Why a turn is ended from here.
var (
	errStopped = errors.New("reader stopped")
	errTimeout = errors.New("the program took too long")
)

// A turn is what the program is asked, and on whose behalf.
type turn struct {
	call *agentbus.Call
	in   []agentbus.TurnKey         // the calls that it is made inside of, as far as they are known
	key  string                     // of its conversation; "" where each turn is one of its own
	text string                     // of the whole prompt
	env  map[string]string          // its variables (B2)
	hide func(string) string        // hides its credentials
	emit func(agentbus.Chunk) error // without them
}

func (a *Agent) turn(ctx context.Context, c *agentbus.Call, emit func(agentbus.Chunk) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.config.Timeout, errTimeout)
	defer cancel()
	caller, payer := a.config.Caller(ctx)
	token, revoke := a.config.Tokens.Mint(agentbus.Scope{Caller: caller, Payer: payer, Lineage: c.Lineage}, time.Now().Add(a.config.Timeout))
	defer revoke()
	defer context.AfterFunc(ctx, revoke)() // a program that is being ended calls nobody any more
	t := &turn{
		call: c, in: a.within(ctx), text: prompt(c.Messages, c.Lineage.Speaker), env: a.ofTurn(c.Lineage, token),
		hide: func(s string) string { return c.Lineage.Auth.Redact(token.Redact(s)) },
	}
	t.emit = a.veil(t.env).over(emit)
	if a.config.Conversation {
		t.key = a.workerKey(payer, c.Lineage)
	}
	ended, stderr, err := a.serve(ctx, t)
	a.config.Logger.LogAttrs(ctx, slog.LevelDebug, "program ended its turn", slog.String("agent", a.config.Name), slog.String("turn", string(c.Lineage.Turn)),
		slog.String("ended", ended.String()), slog.String("stderr", stderr))
	return a.outcome(ctx, err, ended, stderr)
}

func (a *Agent) within(ctx context.Context) []agentbus.TurnKey {
	if a.config.Within == nil {
		return nil
	}
	return a.config.Within(ctx)
}

// serve has a turn served, when its conversation is free.
func (a *Agent) serve(ctx context.Context, t *turn) (ended end, stderr string, err error) {
	if a.config.Worker || !a.config.Session.isZero() {
		leave, err := a.lanes.enter(ctx, t.key, t.call.Lineage, t.in)
		if err != nil {
			return ended, "", err
		}
		defer leave()
	}
	if !a.config.Worker {
		return a.once(ctx, t)
	}
	stderr, err = a.work(ctx, t)
	return end{"exit", "0"}, stderr, err // of the turn; a worker that ends meanwhile is an error
}

// once has a turn served by a process of its own.
func (a *Agent) once(ctx context.Context, t *turn) (ended end, stderr string, err error) {
	s, err := a.sessions.begin(t.key)
	if err != nil {
		return ended, "", a.cannotStart(err)
	}
	text := t.text
	if s != nil && s.resumes { // the program knows what was said before
		text = prompt(since(t.call.Messages), t.call.Lineage.Speaker)
	}
	args, stdin, err := a.arguments(s.arguments(), text)
	if err != nil {
		return ended, "", err
	}
	at, err := a.rooms.enter(t.key)
	if err != nil {
		return ended, "", a.cannotStart(err)
	}
	defer at.leave()
	env := a.inherited()
	for name, value := range t.env {
		env = append(env, name+"="+value)
	}
	p, err := a.start(args, env, at.dir)
	if err != nil {
		return ended, "", a.cannotStart(err)
	}
	defer context.AfterFunc(ctx, p.stop)()
	p.write(stdin, true)
	out := a.newReader(t)
	if err = out.read(p); err != nil {
		p.stop() // what is read no further need not be written
	}
	ended = p.wait()
	if err == nil && ctx.Err() == nil && ended.ok() {
		if err := s.keep(out.session); err != nil {
			a.config.Logger.LogAttrs(ctx, slog.LevelWarn, "a session is lost", slog.String("agent", a.config.Name), slog.Any("error", err))
		}
		err = t.emit(out.last(text))
	}
	return ended, p.stderr.text(t.hide), err
}

// outcome says what became of a turn: what ended it from here, else what was
// wrong with its output, else how the program ended.
func (a *Agent) outcome(ctx context.Context, read error, ended end, stderr string) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(read, errStopped):
		return read
	case errors.Is(cause, errTimeout):
		return &agentbus.Error{
			Code: agentbus.CodeDeadlineExceeded, Message: "the program did not end within " + a.config.Timeout.String() + lastWords(stderr), Err: said(stderr),
			Explain: &agentbus.Explain{Rule: "B3", Limit: a.config.Timeout.String(), Next: "ask for less, or ask the operator to raise timeout on this agent"},
		}
	case cause != nil:
		return fmt.Errorf("run %s: %w", a.config.Name, cause)
	case read != nil:
		if own, ok := errors.AsType[*agentbus.Error](read); ok {
			return own
		}
		return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the program's answer could not be read", Err: errors.Join(read, said(stderr))}
	case ended.ok():
		return nil
	case ended.how == "start":
		return a.cannotStart(errors.New(ended.what))
	}
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the program " + ended.String() + lastWords(stderr), Err: said(stderr),
		Explain: &agentbus.Explain{Rule: "B1", Next: "the log of the bus has what the program wrote on its standard error"},
	}
}

func (a *Agent) cannotStart(err error) error {
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the program of agent " + a.config.Name + " cannot be started", Err: err,
		Explain: &agentbus.Explain{Rule: "B1", Next: "its operator finds the cause in the log"},
	}
}

func (a *Agent) tooLong() error {
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the program wrote more than " + strconv.FormatInt(a.config.MaxOutput, 10) + " bytes",
		Explain: &agentbus.Explain{Rule: "B3", Limit: a.config.MaxOutput, Next: "ask for less, or ask the operator to raise max_output on this agent"},
	}
}
