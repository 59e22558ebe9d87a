package a2a

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/agentbus/agentbus"
)

// The extensions that a face declares when they are on (A31). None is required.
const (
	ExtensionPolicy   = "https://mentionable.dev/ns/policy/v0.1"
	ExtensionIdentity = "https://mentionable.dev/ns/identity/v0.1"
)

// Tasks keeps the tasks of a face (A25). It is safe for concurrent use; its
// errors are CodeStoreUnavailable, or as its methods say.
type Tasks interface {
	// CreateTask stores a task made of a message, unless the message is known:
	// then it returns the task that it made, and its digest there (A19).
	CreateTask(ctx context.Context, t agentbus.Task, m agentbus.TaskMessage) (made agentbus.Task, digest agentbus.Digest, known bool, err error)
	// UpdateTask stores a task whose version is one more than the stored one, or
	// fails with CodeLeaseLost; m, unless nil, is stored with it, or fails with
	// CodeTurnMismatch when it is known.
	UpdateTask(ctx context.Context, t agentbus.Task, m *agentbus.TaskMessage) error
	Task(ctx context.Context, id string) (t agentbus.Task, found bool, err error)
	// TaskOf returns the task of a message, and the message's digest.
	TaskOf(ctx context.Context, principal, agent, message string) (t agentbus.Task, digest agentbus.Digest, found bool, err error)
	// Tasks returns a page of tasks, last changed first, and how many there are.
	Tasks(ctx context.Context, q agentbus.TaskQuery) (tasks []agentbus.Task, total int, err error)
	// DeadTasks returns tasks whose process no longer runs.
	DeadTasks(ctx context.Context, alive func(owner string) bool, limit int) ([]agentbus.Task, error)
	// DecidedTasks returns tasks that wait, of whose interrupts one was decided.
	DecidedTasks(ctx context.Context, skip func(id string) bool, limit int) ([]agentbus.Task, error)
}

// A Served is an agent that a face serves.
type Served struct {
	// Backend is called for each task, with the [Request] in its context whose
	// caller and payer it is called for. It is required.
	Backend     agentbus.Backend
	Description string
	Version     string
	Compat      bool // callers of A2A 0.3 are served too (A26)
	// NoLegacyParent leaves the parent context of a caller that sends no root out
	// of account (K2).
	NoLegacyParent bool
}

// A FaceConfig configures [NewFace].
type FaceConfig struct {
	Tasks  Tasks                                 // required
	Agent  func(name string) (s Served, ok bool) // required
	Owner  string                                // this process, in the tasks that it executes; required
	Alive  func(owner string) bool               // whether another process still runs; nil: none does
	Seal   func(task string, c agentbus.Credential) ([]byte, error)
	Unseal func(ctx context.Context, task string, payer agentbus.Payer, sealed []byte) (c agentbus.Credential, ok bool, err error)
	// Decide resolves an interrupt that a run below is parked on for a task (R22):
	// the agent is called again after it. It reports false, and does nothing, when
	// the resolution names the state of another policy part (C31). One that is
	// resolved already is no error. nil: the agent is called again with the
	// resolution, and that is all.
	Decide func(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution) (done bool, err error)
	// Interrupt returns such an interrupt; nil: what the agent asks is shown as it
	// says it, and Wake must not be called.
	Interrupt func(ctx context.Context, id agentbus.InterruptID) (i agentbus.Interrupt, found bool, err error)
	// Extensions are the URIs that cards declare, none of them required (A31).
	Extensions []string
	MaxTasks   int           // executed at once, beyond which messages are refused; 0: 1024
	KeepAlive  time.Duration // between two comments on a silent stream (A25); 0: 15 s
	Logger     *slog.Logger  // nil: nothing is logged
}

// A Face serves agents of any kind as A2A agents (A25 to A32), to requests that
// the gateway has let in: each has a [Request] in its context. A task is a run
// (E60): it outlives its caller and, where its credential is kept, its process.
// It is safe for concurrent use. Close it.
type Face struct {
	config FaceConfig
	rpc    http.Handler
	rest   http.Handler
	rpc03  http.Handler
	rest03 http.Handler

	ctx   context.Context //nolint:containedctx // of all tasks: they end with the face, not with their callers
	leave context.CancelCauseFunc
	going sync.WaitGroup

	mu     sync.Mutex // guards the rest
	live   map[string]*live
	closed bool
	// Of tasks that wait: those that this process cannot go on with, and how many
	// answers are under way; see Wake.
	passed    map[string]struct{}
	answering map[string]int
}

// NewFace returns the face that c describes. It fails where Tasks, Agent or Owner is
// missing. Tasks that dead processes left are taken up by [Face.Recover].
func NewFace(c FaceConfig) (*Face, error) {
	if c.Tasks == nil || c.Agent == nil || c.Owner == "" {
		return nil, errors.New("a2a face: Tasks, Agent and Owner are required")
	}
	if c.Alive == nil {
		c.Alive = func(string) bool { return false }
	}
	if c.MaxTasks == 0 {
		c.MaxTasks = 1024
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Face{config: c, live: map[string]*live{}, passed: map[string]struct{}{}, answering: map[string]int{}}
	f.ctx, f.leave = context.WithCancelCause(context.Background())
	h := &a2asrv.InterceptedHandler{Handler: handler{f}, Interceptors: []a2asrv.CallInterceptor{userOf{}}, Logger: slog.New(slog.DiscardHandler)}
	alive := a2asrv.WithTransportKeepAlive(c.KeepAlive)
	f.rpc, f.rest = a2asrv.NewJSONRPCHandler(h, alive), a2asrv.NewRESTHandler(h, alive)
	f.rpc03, f.rest03 = a2av0.NewJSONRPCHandler(h, alive), a2av0.NewRESTHandler(h, alive)
	return f, nil
}

// userOf tells the SDK who calls: the gateway has found out (A28).
type userOf struct {
	a2asrv.PassthroughCallInterceptor
}

// Before sets the user of the call.
func (userOf) Before(ctx context.Context, c *a2asrv.CallContext, _ *a2asrv.Request) (context.Context, any, error) {
	if r, ok := FromContext(ctx); ok {
		c.User = a2asrv.NewAuthenticatedUser(r.Caller.ID, nil)
	}
	return ctx, nil, nil
}

// errLeaving ends the tasks of a face that is closed. They stay as they are
// stored, and the next process goes on with them.
var errLeaving = &agentbus.Error{Code: agentbus.CodeDraining, Message: "the bus is shutting down"}

// Drain takes no new tasks from now on, and waits until those that are executed
// have ended, or ctx has.
func (f *Face) Drain(ctx context.Context) {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the tasks: Close ends them
		f.going.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Close ends what is executed, for the next process to go on with, and waits.
func (f *Face) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.leave(errLeaving)
	f.going.Wait()
}

var errDraining = &agentbus.Error{
	Code: agentbus.CodeDraining, Message: "this bus is shutting down",
	Explain: &agentbus.Explain{Rule: "G31", Next: "send the same message again after the given time"},
}
