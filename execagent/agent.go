package execagent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
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
	pool   pool // of workers
}

// New returns the agent that c describes, or every fault of c at once.
func New(c Config) (*Agent, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Agent{
		config: c, rooms: rooms{root: c.Dir, shared: c.ShareDir, age: c.DirAge},
		pool: pool{most: c.Workers, patience: c.WorkerIdle, workers: map[string]*worker{}, changed: make(chan struct{})},
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

func (a *Agent) turn(ctx context.Context, c *agentbus.Call, emit func(agentbus.Chunk) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.config.Timeout, errTimeout)
	defer cancel()
	caller, payer := a.config.Caller(ctx)
	key := ""
	if a.config.Conversation {
		key = workerKey(a.config.InstallKey, payer, a.config.Name, c.Lineage)
	}
	token, revoke := a.config.Tokens.Mint(agentbus.Scope{Caller: caller, Payer: payer, Lineage: c.Lineage}, time.Now().Add(a.config.Timeout+a.config.KillAfter))
	defer revoke()
	env := a.ofTurn(c.Lineage, token)
	var ended end
	var stderr string
	var err error
	if a.config.Worker {
		ended = end{"exit", "0"} // of the turn; a worker that ends meanwhile is an error
		stderr, err = a.work(ctx, key, &request{Prompt: prompt(c), Messages: c.Messages, Env: env}, emit)
	} else {
		ended, stderr, err = a.once(ctx, c, key, env, emit)
	}
	hide := func(s string) string { return c.Lineage.Auth.Redact(token.Redact(s)) }
	stderr = hide(stderr)
	a.config.Logger.LogAttrs(ctx, slog.LevelDebug, "program ended its turn", slog.String("agent", a.config.Name), slog.String("turn", string(c.Lineage.Turn)),
		slog.String("ended", ended.String()), slog.String("stderr", stderr))
	if own, ok := errors.AsType[*agentbus.Error](err); ok {
		e := *own
		e.Message = hide(e.Message) // it may hold words of the program
		err = &e
	}
	return a.outcome(ctx, err, ended, stderr)
}

// once has a turn served by a process of its own.
func (a *Agent) once(ctx context.Context, c *agentbus.Call, key string, turn map[string]string, emit func(agentbus.Chunk) error) (ended end, stderr string, err error) {
	text := prompt(c)
	args, stdin, err := a.arguments(text)
	if err != nil {
		return ended, "", err
	}
	dir, leave, err := a.rooms.enter(key)
	if err != nil {
		return ended, "", a.cannotStart(err)
	}
	defer leave()
	env := a.inherited()
	for name, value := range turn {
		env = append(env, name+"="+value)
	}
	p, err := a.start(args, env, dir)
	if err != nil {
		return ended, "", a.cannotStart(err)
	}
	defer context.AfterFunc(ctx, p.stop)()
	p.write(stdin, true)
	out := a.newReader(emit)
	if err = out.read(p); err != nil {
		p.stop() // what is read no further need not be written
	}
	ended, stderr = p.wait()
	if err == nil && ctx.Err() == nil && ended.ok() {
		err = emit(out.last(text))
	}
	return ended, stderr, err
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
