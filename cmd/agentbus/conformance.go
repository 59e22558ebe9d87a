package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conformance"
)

// conformanceVerb asks an endpoint, from outside, whether it keeps the bus
// protocol.
type conformanceVerb struct {
	URL            string        `arg:"" name:"url" help:"The endpoint, such as http://127.0.0.1:8080."`
	Agent          string        `placeholder:"NAME" help:"The model under which the endpoint knows the agent of this check; without, what arrives behind the endpoint is not looked at."`
	AgentListen    string        `default:"127.0.0.1:0" placeholder:"ADDR" help:"Where the agent of this check listens, host:port; else on loopback, at a port that is free."`
	Wait           time.Duration `default:"0s" help:"How long the endpoint may take to know the agent."`
	KeyEnv         string        `default:"AGENTBUS_TOKEN" placeholder:"NAME" help:"Variable with a key of the endpoint; else AGENTBUS_TOKEN."`
	SecondKeyEnv   string        `placeholder:"NAME" help:"Variable with a key of another principal."`
	RelayKeyEnv    string        `placeholder:"NAME" help:"Variable with a key of an inter-agent caller."`
	DepthLimit     int           `default:"4" help:"Depth at which the endpoint refuses."`
	MaxBody        int64         `default:"4194304" placeholder:"BYTES" help:"Largest request body that the endpoint takes; else 4 MiB."`
	Timeout        time.Duration `default:"10s" help:"Of one check."`
	AllowPlaintext bool          `help:"Send the keys over plain HTTP to another machine."`
	Only           []string      `placeholder:"RULE" help:"Only checks of these rules, or with these ids."`
}

// Run runs the checks and prints what they found.
func (v *conformanceVerb) Run(ctx context.Context, a *app) error {
	c := conformance.Config{
		URL: v.URL, Agent: v.Agent, Wait: v.Wait, DepthLimit: v.DepthLimit, MaxBody: v.MaxBody, Timeout: v.Timeout,
		AllowPlaintext: v.AllowPlaintext, Only: v.Only,
	}
	if v.DepthLimit < 1 || v.MaxBody < 1 || v.Timeout <= 0 || v.Wait < 0 {
		return &failure{exit: exitUsage, what: "--depth-limit, --max-body and --timeout must be above 0, and --wait not below"}
	}
	var err error
	if c.Key, err = a.keyOf(v.KeyEnv); err == nil {
		c.SecondKey, err = a.keyOf(v.SecondKeyEnv)
	}
	if err == nil {
		c.RelayKey, err = a.keyOf(v.RelayKeyEnv)
	}
	if err != nil {
		return err
	}
	if v.Agent != "" {
		if c.Listener, err = v.listen(ctx, a); err != nil {
			return err
		}
	}
	report, err := conformance.Run(ctx, c)
	if err != nil {
		return err
	}
	if err := a.answer(report, harmless(conformanceText(report))); err != nil {
		return err
	}
	if report.Failed > 0 {
		return &failure{exit: exitFailed, what: plural(report.Failed, "check") + " failed", next: "see docs/conformance.md for what each rule asks"}
	}
	if report.Passed == 0 {
		return &failure{exit: exitUsage, what: "nothing was checked: " + plural(report.Skipped, "check") + " skipped", next: "give what they lack, as the report says, such as --agent"}
	}
	return nil
}

// keyOf returns the key in a variable as an Authorization value; none for no
// variable.
func (a *app) keyOf(name string) (agentbus.Credential, error) {
	if name == "" {
		return agentbus.Credential{}, nil
	}
	secret, _ := a.env(name)
	const shortest = 8 // a shorter one stands in any text by chance, and could not be told from it (P19)
	if len(secret) < shortest || strings.ContainsAny(secret, "\r\n\t ,") {
		return agentbus.Credential{}, &failure{
			exit: exitUsage, what: "there is no key in " + name, why: "it must have 8 characters or more, and no space or comma",
			next: "put the secret of a key of the endpoint there, without a scheme",
		}
	}
	return bearer(agentbus.NewCredential(secret)), nil
}

// listen makes room for the agent and tells how the endpoint gets to know it.
func (v *conformanceVerb) listen(ctx context.Context, a *app) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", v.AgentListen)
	if err != nil {
		return nil, &failure{exit: exitFailed, what: "cannot listen on " + v.AgentListen, why: cause(err), next: "choose another --agent-listen"}
	}
	_, err = fmt.Fprintf(a.stderr, "agentbus: the agent of this check listens on http://%s/v1; the endpoint must know it as an OpenAI-compatible agent named %s, such as\n  agents: {%s: {kind: openai, url: http://%s/v1}}\n", l.Addr(), v.Agent, v.Agent, l.Addr())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// conformanceText is a report as people read it: a table, then what failed.
func conformanceText(r *conformance.Report) string {
	rows := [][]string{{"ID", "RULE", "RESULT", "WHAT"}}
	var found strings.Builder
	reasons := map[string]int{}
	for _, c := range r.Checks {
		outcome := string(c.Outcome)
		if c.Outcome == conformance.Fail {
			outcome = "FAIL"
			fmt.Fprintf(&found, "\nFAIL %s (%s): %s\n", c.ID, c.Rule, c.Title)
		}
		for _, f := range c.Findings {
			fmt.Fprintf(&found, "  sent: %s\n   got: %s\n  want: %s\n", f.Sent, f.Got, f.Want)
		}
		if c.Outcome == conformance.Skip {
			reasons[c.Reason]++
		}
		rows = append(rows, []string{c.ID, c.Rule, outcome, c.Title})
	}
	found.WriteString("\n")
	for _, c := range r.Checks {
		if n := reasons[c.Reason]; n > 0 {
			fmt.Fprintf(&found, "%s skipped: %s\n", plural(n, "check"), c.Reason)
			delete(reasons, c.Reason)
		}
	}
	return table(rows) + found.String() + fmt.Sprintf("%s: %d passed, %d failed, %d skipped; %d requests of at most %d\n", r.URL, r.Passed, r.Failed, r.Skipped, r.Requests, r.Most)
}
