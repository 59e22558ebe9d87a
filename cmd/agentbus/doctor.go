package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// doctorVerb looks at everything that a bus needs, and says what to mend.
type doctorVerb struct {
	Server  string        `placeholder:"URL" help:"Public surface of the running bus to look at, such as http://127.0.0.1:8080; else what answers where this configuration listens."`
	Timeout time.Duration `default:"5s" help:"How long the bus and each agent may take to answer."`
	Ask     bool          `help:"Ask every agent a short question, too, as the payer doctor. It may cost something."`
}

// A findingLevel says how much a finding matters.
type findingLevel string

// The levels.
const (
	levelOK      findingLevel = "ok"
	levelNote    findingLevel = "note"    // worth knowing
	levelWarning findingLevel = "warning" // the bus works, and not as it should
	levelFault   findingLevel = "fault"   // something does not work until it is mended
)

// What is looked at, in this order.
const (
	checkConfig  = "config"
	checkTLS     = "tls"
	checkPorts   = "ports"
	checkVersion = "version"
	checkStore   = "store"
	checkAgents  = "agents"
	checkClock   = "clock"
)

// A finding is what the doctor says of one thing.
type finding struct {
	Check   string       `json:"check"`
	Subject string       `json:"subject,omitempty"` // such as the name of an agent
	Level   findingLevel `json:"level"`
	What    string       `json:"what"`
	Next    string       `json:"next,omitempty"` // how to mend it; every warning and fault has it
}

// A diagnosis is all findings.
type diagnosis struct {
	Findings []finding `json:"findings"`
	Faults   int       `json:"faults"`
	Warnings int       `json:"warnings"`
}

// A doctor looks at one configuration.
type doctor struct {
	*app
	verb   *doctorVerb
	c      *config.Config
	whole  bool // c has its secrets
	client *http.Client
	bus    string         // URL of the public surface of a running bus; "" when there is none
	opened *server.Server // over the store; nil when it was not opened
	diagnosis
}

// find writes a finding down. What others have said is in it, so it is shown as
// one line, without control characters.
func (d *doctor) find(check, subject string, level findingLevel, what, next string) {
	d.Findings = append(d.Findings, finding{check, harmless(subject), level, harmless(long(what)), harmless(long(next))})
	switch level {
	case levelFault:
		d.Faults++
	case levelWarning:
		d.Warnings++
	case levelOK, levelNote:
	}
}

// Run examines everything and prints what it found. A configuration that cannot
// be used, a fault elsewhere and an agent that does not do are failures of their
// own.
func (v *doctorVerb) Run(ctx context.Context, a *app) error {
	if v.Timeout <= 0 {
		return &failure{exit: exitUsage, what: "--timeout must be above 0", next: "leave it out for 5s"}
	}
	d := &doctor{app: a, verb: v, client: &http.Client{
		Timeout: v.Timeout, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}, // no proxy from the environment, as the bus
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	d.examine(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := a.answer(d.diagnosis, d.text(a.colours(a.stdout))); err != nil || d.Faults == 0 {
		return err
	}
	return &failure{exit: d.exit(), what: plural(d.Faults, "fault") + " found", next: "see to each of them as it says, and look again with agentbus doctor"}
}

// examine looks at one thing after the other.
func (d *doctor) examine(ctx context.Context) {
	if !d.config() {
		return
	}
	d.tls()
	d.ports(ctx)
	d.version(ctx)
	key := d.store(ctx)
	d.agents(ctx)
	if d.verb.Ask {
		d.ask(ctx, key)
	}
	d.clock()
	if d.opened != nil {
		d.opened.Close() //nolint:errcheck // what was acknowledged is durable already
	}
}

// config reads the configuration. The shell of an operator may lack the secrets
// that the bus was started with: what needs none of them is looked at all the
// same.
func (d *doctor) config() (usable bool) {
	c, warnings, err := config.Load(d.source())
	d.whole = err == nil
	for _, w := range warnings {
		place := config.Warning{File: w.File, Line: w.Line, Column: w.Column, Source: w.Source, Key: w.Key, Problem: w.Problem}
		d.find(checkConfig, w.Key, levelWarning, place.String(), cmp.Or(w.Fix, "see agentbus config explain"))
	}
	if err != nil {
		d.configFaults(err)
		d.storeOnly = true
		if c, _, err = config.Load(d.source()); err != nil {
			return false
		}
	}
	d.c = c
	if d.whole {
		what := c.Path
		if what == "" {
			what = "there is no file, so all values are defaults"
		}
		d.find(checkConfig, "", levelOK, fmt.Sprintf("%s: %s, %s, %s", what, plural(len(c.Keys), "key"), plural(len(c.Agents), "agent"), plural(len(c.Conversations), "conversation")), "")
		if len(c.Agents) == 0 {
			d.find(checkConfig, "", levelNote, "there are no agents", "declare one under agents: in the configuration, or write one to begin with: agentbus init")
		}
	}
	return true
}

func (d *doctor) configFaults(err error) {
	faulty, ok := errors.AsType[*config.Error](err)
	if !ok {
		d.find(checkConfig, "", levelFault, err.Error(), "see agentbus config check")
		return
	}
	for _, f := range faulty.Faults {
		fix := f.Fix
		f.Fix = ""
		d.find(checkConfig, f.Key, levelFault, f.String(), cmp.Or(fix, "see agentbus config explain"))
	}
}

// exit is how the worst of the faults ends the program.
func (d *diagnosis) exit() exitCode {
	exit := exitAgent
	for _, f := range d.Findings {
		switch {
		case f.Level != levelFault:
		case f.Check == checkConfig:
			return exitUsage
		case f.Check != checkAgents:
			exit = exitFailed
		}
	}
	return exit
}

// text is the diagnosis as people read it: a line a finding, and below it what to
// do.
func (d *diagnosis) text(p paint) string {
	var b strings.Builder
	for _, f := range d.Findings {
		mark := fmt.Sprintf("%-8s", f.Level)
		switch f.Level {
		case levelFault:
			mark = p.red("FAULT   ")
		case levelWarning:
			mark = p.bold(mark)
		case levelOK, levelNote:
			mark = p.dim(mark)
		}
		subject := ""
		if f.Subject != "" && f.Check != checkConfig { // a fault of the file tells its place
			subject = f.Subject + ": "
		}
		fmt.Fprintf(&b, "%s %-8s %s%s\n", mark, f.Check, subject, f.What)
		if f.Next != "" {
			fmt.Fprintf(&b, "%18snext: %s\n", "", f.Next)
		}
	}
	verdict := "nothing is wrong"
	if d.Faults+d.Warnings > 0 {
		verdict = plural(d.Faults, "fault") + ", " + plural(d.Warnings, "warning")
	}
	return b.String() + verdict + "\n"
}
