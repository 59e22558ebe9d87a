package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"

	"github.com/agentbus/agentbus/server/config"
)

// cli is the command line: the flags of every verb, and the verbs.
type cli struct {
	globals

	Init    initVerb    `cmd:"" help:"Write a commented agentbus.yaml that works at once, offline."`
	Serve   serveVerb   `cmd:"" help:"Run the bus."`
	Demo    demoVerb    `cmd:"" help:"Show the main job, offline and without a key: a conversation, a nested call, a refusal, a retry, a kill and a resume."`
	Run     runVerb     `cmd:"" help:"Drive a conversation, here or at a bus that serves."`
	Resume  resumeVerb  `cmd:"" help:"Go on with a run that paused or was cut off."`
	Call    callVerb    `cmd:"" help:"Call one agent of a running bus; inside a program that is an agent, as the turn it serves."`
	Stop    stopVerb    `cmd:"" help:"Cut every live call of a run at a serving bus, and refuse new ones."`
	Inbox   inboxVerb   `cmd:"" help:"List what runs wait for: approvals, payments, answers."`
	Approve approveVerb `cmd:"" help:"Grant what an agent asks, once, and let its run go on."`
	Deny    denyVerb    `cmd:"" help:"Deny what an agent asks, once, and let its run go on without."`
	Runs    runsVerb    `cmd:"" help:"List runs, newest first."`
	Trace   traceVerb   `cmd:"" help:"Show who called whom in a run, at which depth, and who paid."`
	Replay  replayVerb  `cmd:"" help:"Drive a run again against what was recorded of it, calling nobody; or fork it; or compare it with another."`
	Events  eventsVerb  `cmd:"" help:"Print what the drivers of a run wrote, a line an event."`
	Agents  agentsVerbs `cmd:"" help:"List the agents, or check a remote one."`
	Ledger  ledgerVerbs `cmd:"" help:"Show, export and verify what calls came to."`
	Keys    keysVerbs   `cmd:"" help:"Manage API keys."`
	Doctor  doctorVerb  `cmd:"" help:"Look at everything that a bus needs, and tell what to mend: configuration, ports, clock, store and disk, TLS, agents, versions."`
	Bench   benchVerb   `cmd:"" help:"Measure what the bus costs: load on a bus and on the agent itself, in turn; bounded, and on this machine unless told otherwise."`
	Migrate migrateVerb `cmd:"" help:"Bring the tables of the store up to date; fill PostgreSQL with a SQLite store. A bus does the first by itself."`
	Config  configVerbs `cmd:"" help:"Check, explain or describe the configuration."`
	Version versionVerb `cmd:"" help:"Tell which agentbus this is."`

	Completion completionVerb `cmd:"" help:"Print what teaches bash, zsh or fish to complete agentbus."`
	Complete   completeVerb   `cmd:"" hidden:"" help:"Candidates for the scripts of agentbus completion."`

	Conformance conformanceVerb `cmd:"" help:"Check any endpoint against the bus protocol, from outside."`
}

// globals are the flags of every verb.
type globals struct {
	ConfigFile string `name:"config" complete:"file" placeholder:"FILE" help:"The configuration; else what AGENTBUS_CONFIG names, else ./agentbus.yaml, else defaults."`
	JSON       bool   `name:"json" help:"Print JSON, errors too."`
	Dev        bool   `name:"dev" help:"Allow secrets in the configuration file."`
}

// An app is what a verb has to work with. It is used by one verb.
type app struct {
	globals

	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) (string, bool)
	storeOnly      bool // the verb serves nobody, and needs no secrets
	// terminal tells how large the terminal is that a writer is; nil: the system is
	// asked.
	terminal func(io.Writer) (width, height int, ok bool)
	// lost is why something of a run could not be shown.
	lost error
	// parting is what is said when the user leaves at once.
	parting *atomic.Pointer[string]
}

// newApp returns what a verb has to work with. It touches nothing of the process but
// what it is given, files and the network.
func newApp(stdin io.Reader, stdout, stderr io.Writer, env func(string) (string, bool)) *app {
	return &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env, parting: new(atomic.Pointer[string])}
}

func (a *app) main(ctx context.Context, args []string) int {
	if err := a.run(ctx, args); err != nil {
		return int(a.report(ctx, err))
	}
	return int(exitOK)
}

func (a *app) run(ctx context.Context, args []string) error {
	var c cli
	helped := false
	parser, err := kong.New(&c,
		kong.Name("agentbus"),
		kong.Description("A bus for agents that call agents. To begin: agentbus demo; then agentbus init and agentbus serve. Exit codes: 0 ok, 1 failed, 2 usage or bad configuration, 3 refused by policy, 4 budget, 5 agent failed, 6 waiting for a human, 130 interrupted."),
		kong.Writers(a.stdout, a.stderr),
		kong.Exit(func(int) { helped = true }), // called once help has been printed
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(a),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(readDuration)),
	)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(spelled(args))
	a.globals = c.globals
	switch {
	case helped:
		return nil
	case err != nil:
		a.JSON = a.JSON || slices.Contains(args, "--json")
		return err
	}
	return parsed.Run()
}

// readDuration reads a flag as the configuration reads a duration. One of no time, or
// less, is for the verb to refuse.
func readDuration(c *kong.DecodeContext, into reflect.Value) error {
	var text string
	if err := c.Scan.PopValueInto("duration", &text); err != nil {
		return err //nolint:wrapcheck // it names the flag
	}
	d, err := config.ParseDuration(text)
	if err != nil {
		var plain error
		if d, plain = time.ParseDuration(text); plain != nil {
			return fmt.Errorf("%w; write it as 90s, 1h30m or 2d", err)
		}
	}
	into.SetInt(int64(d))
	return nil
}

// spelled returns args as the parser knows them: "help VERB" is "VERB --help",
// and "--version" alone is the verb.
func spelled(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) == 1 && args[0] == "--version":
		return []string{"version"}
	}
	return args
}

// load reads the configuration. What the command line sets is given as flags;
// warnings go to stderr.
func (a *app) load(flags ...config.Flag) (*config.Config, error) {
	c, warnings, err := config.Load(a.source(flags...))
	for _, w := range warnings {
		fmt.Fprintln(a.stderr, "agentbus: warning:", w) //nolint:errcheck // nobody is left to tell
	}
	return c, err
}

func (a *app) source(flags ...config.Flag) config.Source {
	return config.Source{Path: a.ConfigFile, Env: a.env, Dev: a.Dev, Flags: flags, StoreOnly: a.storeOnly}
}

// answer prints the result of a verb: v as JSON under --json, else text.
func (a *app) answer(v any, text string) error {
	if !a.JSON {
		_, err := io.WriteString(a.stdout, text)
		return err
	}
	return printJSON(a.stdout, v)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
