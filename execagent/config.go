package execagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// Input is how a program is given its prompt.
type Input string

// The inputs.
const (
	InputStdin Input = "stdin" // on its standard input, which then ends
	InputArg   Input = "arg"   // as its last argument, behind "--"
)

// Output is how a program's standard output is read.
type Output string

// The outputs.
const (
	OutputText  Output = "text"  // it is the answer
	OutputJSONL Output = "jsonl" // each line is a JSON object; Fields say what is in it
)

// Tokens mints call-scoped tokens (B2). Mint is safe for concurrent use, and so
// is the function it returns, which makes the token worthless.
type Tokens interface {
	Mint(s agentbus.Scope, expires time.Time) (token agentbus.Credential, revoke func())
}

// A Config says which program answers, and how it is run.
type Config struct {
	Name    string   // of the agent; required
	Command []string // the program and its arguments; never read by a shell (B5); required
	// Supervisor is the command that ends in [Supervise]; required. The bus
	// gives its own binary.
	Supervisor []string
	Input      Input  // "": InputStdin
	Output     Output // "": OutputText
	Fields     Fields // of OutputJSONL; Text or Result is required
	// ReportCost passes on the cost that the program says it had, for a bus that
	// charges it.
	ReportCost bool

	Timeout   time.Duration // of a turn; 0: 5 min
	KillAfter time.Duration // from SIGTERM to SIGKILL; 0: 1 s
	MaxOutput int64         // bytes that a program may write; 0: 16 MiB
	// MaxMemory are bytes of memory that each process, and all of them together, may
	// have for themselves, where the kernel allows; 0: any.
	MaxMemory int64

	// Env are the names of variables of the bus that the program sees, beside HOME,
	// LANG, LC_ALL, LC_CTYPE, LOGNAME, PATH, SHELL, TERM, TMPDIR, TZ and USER, and
	// those that every program has (B2).
	Env []string
	// ForwardAuthorizationEnv names the variable that hands the program the
	// origin's credential, whole; "": it is not given.
	ForwardAuthorizationEnv string
	// Dir is where working directories are made. It is made when it is not there;
	// required.
	Dir      string
	DirAge   time.Duration // for how long one is kept after its last turn, and twice Timeout, or WorkerIdle, at least; 0: 7 days
	ShareDir bool          // the program runs in Dir itself
	// Conversation keeps the working directory for all turns of one conversation
	// of one payer (B4); otherwise each turn has an empty one. InstallKey makes
	// their names; required with it.
	Conversation bool
	InstallKey   []byte
	// NoLegacyParent does without the parent context of a caller that tells no
	// root context, as the root of its conversation (K2).
	NoLegacyParent bool

	// Session tells a program that keeps its conversations itself which one a turn
	// belongs to; it needs Conversation. The program is then told what is new. Zero:
	// it keeps none.
	Session Session

	// Worker keeps a process for each conversation, which reads a JSON line for
	// each turn and writes JSON lines, see docs/guides/programs.md; it needs
	// Conversation. There are Workers at once at most, 0: 16; one that has been idle
	// for WorkerIdle is ended, 0: 10 min.
	Worker     bool
	Workers    int
	WorkerIdle time.Duration

	MaxDepth int // of the bus; for AGENTBUS_MAX_DEPTH; 0: agentbus.DefaultMaxDepth
	// URL returns where the bus is reached from here; "": nowhere. nil: nowhere.
	URL func() string
	// Caller tells as whom a program calls, and on whose bill; required.
	Caller func(context.Context) (agentbus.Principal, agentbus.Payer)
	// Within tells the calls that a call is made inside of, so that none waits for
	// one of them; nil: nothing is known but the call's parent.
	Within func(context.Context) []agentbus.TurnKey
	Tokens Tokens                           // required
	Lookup func(name string) (string, bool) // the environment of the bus; required
	Logger *slog.Logger                     // nil: nothing is logged
}

const (
	defaultTimeout    = 5 * time.Minute
	defaultKillAfter  = time.Second
	defaultMaxOutput  = 16 << 20
	defaultWorkers    = 16
	defaultWorkerIdle = 10 * time.Minute
	defaultDirAge     = 7 * 24 * time.Hour
)

var variableRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// check reports every fault of c at once, and fills in what it leaves out.
func (c *Config) check() error {
	var faults []error
	fault := func(bad bool, text string) {
		if bad {
			faults = append(faults, errors.New(text))
		}
	}
	fault(!supported, "programs as agents need a Unix system")
	fault(c.Name == "", "Name is required")
	fault(len(c.Command) == 0 || c.Command[0] == "", "Command is required")
	fault(slices.ContainsFunc(c.Command, func(s string) bool { return strings.ContainsRune(s, 0) }), "Command holds a NUL")
	fault(len(c.Supervisor) == 0, "Supervisor is required: a program must not outlive the bus")
	fault(c.Dir == "", "Dir is required")
	fault(c.Conversation && len(c.InstallKey) == 0, "InstallKey is required with Conversation")
	fault(c.Worker && !c.Conversation, "Worker needs Conversation: a worker is never shared between payers")
	fault(c.Worker && (c.Input == InputArg || c.Output == OutputJSONL), "a Worker has an input and an output of its own")
	fault(c.Worker && !c.Session.isZero(), "a Worker keeps its conversation by itself: Session is of programs that are started for each turn")
	fault(!c.Conversation && !c.Session.isZero(), "Session needs Conversation: a session is never shared between payers")
	if err := c.Session.check(); err != nil {
		faults = append(faults, err)
	}
	fault(c.Workers < 0 || c.WorkerIdle < 0, "Workers or WorkerIdle is negative")
	fault(c.Caller == nil || c.Tokens == nil || c.Lookup == nil, "Caller, Tokens and Lookup are required")
	fault(c.Timeout < 0 || c.KillAfter < 0 || c.MaxOutput < 0 || c.MaxMemory < 0 || c.DirAge < 0 || c.MaxDepth < 0, "a limit is negative")
	fault(!slices.Contains([]Input{"", InputStdin, InputArg}, c.Input), "there is no such Input")
	fault(!slices.Contains([]Output{"", OutputText, OutputJSONL}, c.Output), "there is no such Output")
	fault(c.Output == OutputJSONL && c.Fields.Text == "" && c.Fields.Result == "", "Fields say nowhere what the answer is")
	for _, name := range append(slices.Clone(c.Env), c.ForwardAuthorizationEnv) {
		fault(name != "" && (!variableRE.MatchString(name) || reserved(name)), "the program's variable "+name+" cannot be set by configuration")
	}
	if len(faults) > 0 {
		return fmt.Errorf("program %s: %w", c.Name, errors.Join(faults...))
	}
	if strings.Contains(c.Command[0], "/") && !filepath.IsAbs(c.Command[0]) { // from where the bus runs, not the program
		at, err := filepath.Abs(c.Command[0])
		if err != nil {
			return fmt.Errorf("program %s: %w", c.Name, err)
		}
		c.Command = append([]string{at}, c.Command[1:]...)
	}
	c.setDefaults()
	return nil
}

func (c *Config) setDefaults() {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.KillAfter == 0 {
		c.KillAfter = defaultKillAfter
	}
	if c.MaxOutput == 0 {
		c.MaxOutput = defaultMaxOutput
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.WorkerIdle == 0 {
		c.WorkerIdle = defaultWorkerIdle
	}
	if c.DirAge == 0 {
		c.DirAge = defaultDirAge
	}
	c.DirAge = max(c.DirAge, 2*c.Timeout) // none is removed under a turn, also not by another bus
	if c.Worker {
		c.DirAge = max(c.DirAge, 2*c.WorkerIdle)
	}
	if c.MaxDepth == 0 {
		c.MaxDepth = agentbus.DefaultMaxDepth
	}
	if c.URL == nil {
		c.URL = func() string { return "" }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}
