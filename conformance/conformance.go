// Package conformance asks a running endpoint, from outside, whether it keeps
// the bus protocol. It looks from two places: at what the endpoint answers, and
// at what arrives behind it, for which it brings an agent of its own that the
// operator registers there. What it sends goes over plain sockets, so that no
// HTTP library repairs what is wrong on purpose.
//
// The checks are one table, [Checks]; a check tells which rule it is of, and a
// report what was sent, what came back and what should have.
package conformance

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// Config configures [Run].
type Config struct {
	URL string // of the endpoint, with or without /v1; required
	// Key is an Authorization value the endpoint knows; required. A token of a
	// few characters would be found in any answer (P19).
	Key agentbus.Credential

	// SecondKey is another principal's, RelayKey that of one that may forward
	// the credential of others (P20). None: the checks that need it are skipped.
	SecondKey, RelayKey agentbus.Credential

	// Agent is the name under which the endpoint knows the agent that Run
	// serves on Listener. Both or neither: without, the checks that look behind
	// the endpoint are skipped. Run closes Listener.
	Agent    string
	Listener net.Listener
	// Wait is how long the endpoint may take to know the agent; 0: it must already.
	Wait time.Duration

	DepthLimit     int           // at which the endpoint refuses (P10); 0: agentbus.DefaultMaxDepth
	MaxBody        int64         // bytes of a request body that the endpoint takes (G3); 0: 4 MiB
	Timeout        time.Duration // of one check; 0: 10 s
	AllowPlaintext bool          // send the keys over plain HTTP to a host that is not loopback (P24)
	Only           []string      // rules or ids of checks; none: all
}

// A Need is what a check must have, beside the endpoint and a key.
type Need int

// The needs of checks; they are added up.
const (
	NeedAgent  Need = 1 << iota // an agent of ours behind the endpoint
	NeedSecond                  // the key of another principal
	NeedRelay                   // the key of one that may forward
)

// A Check is one question about the endpoint.
type Check struct {
	ID    string // unique; the rule and a word
	Rule  string // a number of the specifications, or the title of a section in one word: HEADERS, BODY, HTTP
	Title string // what holds when the check passes
	Needs Need

	run func(*probe)
}

// Checks returns all checks in the order in which they run.
func Checks() []Check {
	return slices.Concat(
		nameChecks, depthChecks, idChecks, absenceChecks, forwardChecks, limitChecks, bodyChecks, credentialChecks,
		surfaceChecks, proxyChecks, streamChecks, onceChecks, keyChecks, attachChecks, socketChecks,
		lastChecks,
	)
}

// An Outcome is what became of a check.
type Outcome string

// The outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Skip Outcome = "skip" // what it needs was not given: nothing is known
)

// A Finding is one broken promise. It holds no credential.
type Finding struct {
	Sent string `json:"sent"`
	Got  string `json:"got"`
	Want string `json:"want"`
}

// A Result is the outcome of one check.
type Result struct {
	ID       string    `json:"id"`
	Rule     string    `json:"rule"`
	Title    string    `json:"title"`
	Outcome  Outcome   `json:"outcome"`
	Reason   string    `json:"reason,omitempty"` // why it was skipped
	Findings []Finding `json:"findings,omitempty"`
}

// A Report is what was found out about an endpoint.
type Report struct {
	URL      string   `json:"url"`
	Agent    string   `json:"agent,omitempty"`
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	Skipped  int      `json:"skipped"`
	Requests int      `json:"requests"` // sent in all
	Most     int      `json:"requests_at_most"`
	Checks   []Result `json:"checks"`
}

// maxRequests bounds what one run sends to the endpoint.
const maxRequests = 600

// Run runs the checks one after the other. It fails when the endpoint cannot be
// asked at all: a faulty configuration, an agent that calls do not reach, or,
// without an agent and Only, an endpoint that does not answer, does not know the
// key or shows nothing of the protocol, where every check would say the same. A check that fails is in the report and is no error.
func Run(ctx context.Context, c Config) (*Report, error) {
	s, err := newSession(c)
	if err != nil {
		if c.Listener != nil {
			err = errors.Join(err, c.Listener.Close())
		}
		return nil, err
	}
	if c.Listener != nil {
		s.agent = serveAgent(c.Listener)
		defer s.agent.close() //nolint:contextcheck // it ends when the checks have, whatever became of ctx
		if err := s.reachAgent(ctx); err != nil {
			return nil, err
		}
	} else if len(c.Only) == 0 {
		if err := s.recognize(ctx); err != nil {
			return nil, err
		}
	}
	report := &Report{URL: s.redact(s.base.String()), Agent: c.Agent, Most: maxRequests, Checks: []Result{}}
	for _, check := range Checks() {
		if !wanted(check, c.Only) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		report.add(s.perform(ctx, check))
	}
	report.Requests = s.requests
	if len(report.Checks) == 0 {
		return nil, misuse("no check is of "+strings.Join(c.Only, ", "), "name rules such as P10, or ids of checks such as P3-signs")
	}
	return report, nil
}

func (r *Report) add(result Result) {
	r.Checks = append(r.Checks, result)
	switch result.Outcome {
	case Pass:
		r.Passed++
	case Fail:
		r.Failed++
	case Skip:
		r.Skipped++
	}
}

func wanted(c Check, only []string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(s string) bool {
		return strings.EqualFold(s, c.Rule) || strings.EqualFold(s, c.ID)
	})
}

// newSession checks the configuration. It reports every fault at once.
func newSession(c Config) (*session, error) {
	var faults []string
	base, err := url.Parse(strings.TrimSuffix(strings.TrimSuffix(c.URL, "/"), "/v1"))
	switch {
	case err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.User != nil:
		return nil, misuse("the endpoint must be an http or https URL, such as http://127.0.0.1:8080", "give the base of its API")
	case base.Scheme == "http" && !loopback(base.Hostname()) && !c.AllowPlaintext:
		faults = append(faults, "the keys would cross the network in the clear to "+base.Hostname()+" (P24)")
	}
	if c.Key.IsZero() {
		faults = append(faults, "a key that the endpoint knows is required")
	}
	if (c.Agent == "") != (c.Listener == nil) {
		faults = append(faults, "an agent needs both a name and an address to listen on")
	}
	if c.DepthLimit < 0 || c.MaxBody < 0 || c.MaxBody > mostBody || c.Timeout < 0 {
		faults = append(faults, "the depth limit, the body limit (at most 64 MiB) or the timeout is out of its range")
	}
	if len(faults) > 0 {
		return nil, misuse(strings.Join(faults, "; "), "see agentbus conformance --help")
	}
	s := &session{cfg: c, base: base, model: c.Agent}
	if s.model == "" {
		s.model = "agentbus-conformance"
	}
	s.cfg.DepthLimit = or(c.DepthLimit, agentbus.DefaultMaxDepth)
	s.cfg.MaxBody = or(c.MaxBody, 4<<20)
	s.cfg.Timeout = or(c.Timeout, 10*time.Second)
	s.secrets = []agentbus.Credential{c.Key, c.SecondKey, c.RelayKey}
	return s, nil
}

const mostBody = 64 << 20

func or[T int | int64 | time.Duration](v, zero T) T {
	if v == 0 {
		return zero
	}
	return v
}

func loopback(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

func misuse(message, next string) error {
	return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: message, Explain: &agentbus.Explain{Next: next}}
}
