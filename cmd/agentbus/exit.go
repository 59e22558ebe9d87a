package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server/config"
)

// An exitCode is what the process ends with. Scripts rely on it.
type exitCode int

const (
	exitOK          exitCode = 0
	exitFailed      exitCode = 1 // something broke
	exitUsage       exitCode = 2 // the command line, the configuration or the request is wrong
	exitRefused     exitCode = 3 // policy said no
	exitBudget      exitCode = 4 // there is no money left for it
	exitAgent       exitCode = 5 // an agent failed
	exitWaiting     exitCode = 6 // it waits for a human
	exitInterrupted exitCode = 130
)

// exits is the one table from codes to exit codes.
var exits = map[agentbus.Code]exitCode{
	agentbus.CodeInvalidRequest:     exitUsage,
	agentbus.CodeInvalidDepth:       exitUsage,
	agentbus.CodeInvalidLineage:     exitUsage,
	agentbus.CodeDuplicateHeader:    exitUsage,
	agentbus.CodeUnsupportedVersion: exitUsage,
	agentbus.CodeUnsupportedContent: exitUsage,
	agentbus.CodeRequestTooLarge:    exitUsage,
	agentbus.CodeAgentNotFound:      exitUsage,
	agentbus.CodeRunNotFound:        exitUsage,
	agentbus.CodeNotFound:           exitUsage,

	agentbus.CodeUnauthenticated:    exitRefused,
	agentbus.CodeForbidden:          exitRefused,
	agentbus.CodeUntrustedForwarder: exitRefused,
	agentbus.CodeRunStopped:         exitRefused,
	agentbus.CodeTurnMismatch:       exitRefused,
	agentbus.CodeDepthExceeded:      exitRefused,
	agentbus.CodeCycleRefused:       exitRefused,
	agentbus.CodeChainFinal:         exitRefused,
	agentbus.CodeRateLimited:        exitRefused,

	agentbus.CodePaymentRequired: exitBudget,
	agentbus.CodeBudgetExceeded:  exitBudget,

	agentbus.CodeAgentUnavailable: exitAgent,
	agentbus.CodeCircuitOpen:      exitAgent,
	agentbus.CodeAgentRedirected:  exitAgent,
	agentbus.CodeDeadlineExceeded: exitAgent,
	agentbus.CodeOutcomeUnknown:   exitAgent,

	agentbus.CodeInputRequired: exitWaiting,

	agentbus.CodeReplyExpired:        exitFailed,
	agentbus.CodeOverloaded:          exitFailed,
	agentbus.CodeLeaseLost:           exitFailed,
	agentbus.CodeRunConflict:         exitFailed,
	agentbus.CodeStoreUnavailable:    exitFailed,
	agentbus.CodeIdentityUnavailable: exitFailed,
	agentbus.CodeDraining:            exitFailed,
	agentbus.CodeInternal:            exitFailed,
}

// A failure is what a verb itself has to say about why it failed.
type failure struct {
	exit            exitCode
	what, why, next string
	passing         bool // the same may go well in a while
}

// Error returns what happened.
func (f *failure) Error() string { return f.what }

// A problem is an error as the user is told it: what happened, why, what to do.
type problem struct {
	Exit   exitCode       `json:"exit"`
	Code   agentbus.Code  `json:"code,omitempty"`
	What   string         `json:"message"`
	Why    string         `json:"why,omitempty"`
	Next   string         `json:"next,omitempty"`
	Faults []config.Fault `json:"faults,omitempty"`
}

// describe turns an error of any part of the program into words.
func describe(err error) problem {
	if f, ok := errors.AsType[*failure](err); ok {
		return problem{Exit: f.exit, What: f.what, Why: f.why, Next: f.next}
	}
	if e, ok := errors.AsType[*config.Error](err); ok {
		what := "the configuration has a fault"
		if n := len(e.Faults); n > 1 {
			what = fmt.Sprintf("the configuration has %d faults", n)
		}
		return problem{Exit: exitUsage, What: what, Faults: e.Faults}
	}
	if e, ok := errors.AsType[*kong.ParseError](err); ok {
		return problem{Exit: exitUsage, What: e.Error(), Next: known(e.Context)}
	}
	if e, ok := errors.AsType[*agentbus.Error](err); ok {
		return describeCode(e)
	}
	return problem{Exit: exitFailed, What: err.Error()}
}

// describeCode tells an error of the bus. The cause is told too: who runs the
// program is its operator.
func describeCode(e *agentbus.Error) problem {
	p := problem{Exit: exits[e.Code], Code: e.Code, What: e.Message}
	if p.Exit == exitOK { // a code of a later bus
		p.Exit = exitFailed
	}
	if e.Err != nil {
		p.Why = e.Err.Error()
	}
	if x := e.Explain; x != nil {
		p.Next = x.Next
		if p.Why == "" && x.Rule != "" {
			p.Why = "rule " + x.Rule
		}
	}
	return p
}

// known tells what could have been typed where c failed.
func known(c *kong.Context) string {
	node := c.Selected()
	if node == nil {
		node = c.Model.Node
	}
	var told, commands, flags []string
	if len(node.Positional) > 0 {
		told = append(told, "write "+written(node))
	}
	for _, child := range node.Children {
		if !child.Hidden {
			commands = append(commands, child.Name)
		}
	}
	for _, f := range c.Flags() {
		flags = append(flags, "--"+f.Name)
	}
	slices.Sort(flags)
	if len(commands) > 0 {
		told = append(told, "the verbs are "+strings.Join(commands, ", "))
	}
	told = append(told, "the flags are "+strings.Join(slices.Compact(flags), ", "), "see "+strings.TrimSpace(node.FullPath())+" --help")
	return strings.Join(told, "; ")
}

// written is a verb with its arguments as it is typed.
func written(n *kong.Node) string {
	words := []string{strings.TrimSpace(n.FullPath())}
	for _, arg := range n.Positional {
		words = append(words, arg.Summary())
	}
	return strings.Join(words, " ")
}

// hungUp reports whether err says that nobody reads what is printed any more, as
// behind head, which needs no words.
func hungUp(err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ok && e.Path == os.Stdout.Name() && errors.Is(e, syscall.EPIPE)
}

// report prints why the program failed, in the one place that does, and returns
// its exit code.
func (a *app) report(ctx context.Context, err error) exitCode {
	p := describe(err)
	if hungUp(err) {
		return p.Exit
	}
	if ctx.Err() != nil {
		p.Exit = exitInterrupted
		if errors.Is(err, context.Canceled) {
			p.What = "interrupted"
		}
	}
	if a.JSON {
		_ = printJSON(a.stderr, map[string]problem{"error": p}) // nobody is left to tell
		return p.Exit
	}
	var b strings.Builder
	b.WriteString("agentbus: " + p.What + "\n")
	for _, f := range p.Faults {
		fix := f.Fix
		f.Fix = ""
		b.WriteString("  " + f.String() + "\n      " + fix + "\n")
	}
	if p.Why != "" {
		b.WriteString("  why: " + p.Why + "\n")
	}
	if p.Next != "" {
		b.WriteString("  next: " + p.Next + "\n")
	}
	fmt.Fprint(a.stderr, harmless(b.String())) //nolint:errcheck // nobody is left to tell
	return p.Exit
}
