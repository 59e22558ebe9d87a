package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/server/config"
)

// agentsCheckVerb reads the card of a remote agent and tells what of it this bus
// can use.
type agentsCheckVerb struct {
	Where     string   `arg:"" name:"url-or-address" help:"The agent: the URL of its card, its base URL, or its address, such as critic@bots.example.com."`
	AllowHost []string `placeholder:"HOST" help:"A host, as host or host:port, that may be asked although it is on a private network, over plain HTTP too; beside this machine and resolver.allow_hosts."`
}

// A checkedAgent is what the check says: what the card does, and what to write
// into the configuration.
type checkedAgent struct {
	*a2a.CardReport

	Config string `json:"config"` // lines of agentbus.yaml; "" when the agent cannot be called
}

// Run reads the card and prints what it says. An agent that cannot be called is
// a failure.
func (v *agentsCheckVerb) Run(ctx context.Context, a *app) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	report, err := v.examine(ctx, c)
	if err != nil {
		return err
	}
	checked := checkedAgent{CardReport: report}
	if report.Usable {
		checked.Config = agentLines(report)
	}
	if err := a.answer(checked, harmless(checkText(&checked))); err != nil {
		return err
	}
	if !report.Usable {
		return &failure{exit: exitFailed, what: "this bus cannot call the agent", why: harmless(long(blocking(report))), next: "tell its operator"}
	}
	return nil
}

func (v *agentsCheckVerb) examine(ctx context.Context, c *config.Config) (*a2a.CardReport, error) {
	if strings.Contains(v.Where, "@") && !strings.Contains(v.Where, "/") {
		at, err := agentbus.ParseAddress(v.Where)
		if err != nil {
			return nil, err
		}
		d, err := v.dialer(c, "")
		if err != nil {
			return nil, err
		}
		report, err := examineAddress(ctx, c, d, at)
		return report, unexamined(err, "see that the domain is up, and that it knows this address")
	}
	u, err := agentURL(v.Where)
	if err != nil {
		return nil, err
	}
	d, err := v.dialer(c, u.Hostname())
	if err != nil {
		return nil, err
	}
	report, err := examineAt(ctx, d, u)
	return report, unexamined(err, "see that the agent is up, and that this is its URL")
}

// unexamined tells what to do about an agent that could not be looked at, where
// err does not.
func unexamined(err error, next string) error {
	if err == nil {
		return nil
	}
	p := describe(err)
	if p.Next != "" {
		return err
	}
	if e, ok := errors.AsType[*url.Error](err); ok { // without the method and the URL, which are told already
		p.Why = cause(e.Err)
	}
	return &failure{exit: p.Exit, what: p.What, why: p.Why, next: next}
}

// dialer goes where the bus would go, to this machine when it is named, and where
// --allow-host says.
func (v *agentsCheckVerb) dialer(c *config.Config, host string) (*a2a.Dialer, error) {
	allow := slices.Concat(c.Resolver.AllowHosts, v.AllowHost)
	if thisMachine(host) {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		allow = append(allow, host)
	}
	d, err := a2a.NewDialer(a2a.DialerConfig{AllowHosts: allow})
	if err != nil {
		return nil, &failure{exit: exitUsage, what: "--allow-host is neither host nor host:port", next: "write it as bus.internal or bus.internal:8080"}
	}
	return d, nil
}

// thisMachine reports whether host is a name or an address of the loopback.
func thisMachine(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback()
	}
	return strings.HasSuffix("."+strings.ToLower(host), ".localhost")
}

// agentURL reads a URL; without a scheme it is https, or http on this machine.
func agentURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		scheme := "https://"
		if u, err := url.Parse("//" + text); err == nil && thisMachine(u.Hostname()) {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, &failure{exit: exitUsage, what: "this is neither a URL nor an address", next: "write https://bots.example.com/critic or critic@bots.example.com"}
	}
	return u, nil
}

func examineAt(ctx context.Context, d *a2a.Dialer, u *url.URL) (*a2a.CardReport, error) {
	found, err := d.FetchCard(ctx, u)
	if err != nil {
		return nil, err
	}
	card, at := found.Raw, found.At
	var of struct {
		Address agentbus.Address `json:"address"`
	}
	if json.Unmarshal(card, &of) == nil && !of.Address.IsZero() {
		return nil, &failure{exit: exitUsage, what: "what stands at " + at.String() + " is the card of an address, not that of an agent", next: "agentbus agents check " + of.Address.String()}
	}
	report, ok := a2a.Examine(card, at)
	if !ok {
		return nil, &failure{exit: exitAgent, what: "what stands at " + at.String() + " is no agent card", next: "name the URL of the card, or the base URL of the agent"}
	}
	if found.Moved {
		report.Findings = append(report.Findings, a2a.Finding{
			What: "a redirect led to the card, and the bus follows none when it calls agents", Next: "configure the agent where the card stands",
		})
	}
	if !strings.HasSuffix(at.Path, a2a.CardPath) {
		report.Findings = append(report.Findings, a2a.Finding{
			What: "the card does not stand at " + a2a.CardPath + " below the agent's base, where the bus looks for it", Next: "ask for it there",
		})
	}
	return report, nil
}

// examineAddress follows an address to its agent, and reads the card there.
func examineAddress(ctx context.Context, c *config.Config, d *a2a.Dialer, at agentbus.Address) (*a2a.CardReport, error) {
	r, err := a2a.NewResolver(a2a.ResolverConfig{Dialer: d, Domains: []string{at.Domain()}})
	if err != nil {
		return nil, err
	}
	remote, err := r.Resolve(ctx, at)
	if err != nil {
		return nil, err
	}
	report, err := examineAt(ctx, d, remote.Endpoint)
	if err != nil {
		report = a2a.ExamineRemote(remote)
		report.Findings = append(report.Findings, a2a.Finding{What: "there is no card at the endpoint of the address, so less is known of the agent: " + describe(err).What})
	}
	report.Address = remote.Address.String()
	if !slices.ContainsFunc(report.Interfaces, func(f a2a.InterfaceReport) bool {
		return strings.TrimSuffix(f.URL, "/") == strings.TrimSuffix(remote.Endpoint.String(), "/")
	}) {
		report.Findings = append(report.Findings, a2a.Finding{What: "the card does not name the endpoint of the address, " + remote.Endpoint.String(), Next: "calls by address go to that one"})
	}
	for name, a := range c.Agents {
		if a.At.Equal(at) {
			report.Findings = append(report.Findings, a2a.Finding{What: "agent " + name + " of the configuration has this address, so calls go to that"})
		}
	}
	return report, nil
}

func blocking(r *a2a.CardReport) string {
	var why []string
	for _, f := range r.Findings {
		if f.Blocks {
			why = append(why, f.What)
		}
	}
	return strings.Join(why, "; ")
}
