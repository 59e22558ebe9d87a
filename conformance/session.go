package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// A session is one run of the checks against one endpoint. Checks run one after
// the other; what is counted and kept here is touched by the goroutine that runs
// them, but for leaks.
type session struct {
	cfg      Config
	base     *url.URL
	model    string // the name of our agent at the endpoint; without one, a name nobody has
	agent    *recorder
	secrets  []agentbus.Credential // what must not come back (P19), the made-up ones too
	requests int

	mu    sync.Mutex // guards leaks
	leaks []string   // what was sent when an answer held a credential
}

// redact takes the credentials of the session out of s.
func (s *session) redact(text string) string {
	for _, c := range s.secrets {
		text = c.Redact(text)
	}
	return text
}

// reachAgent makes sure that a call of the endpoint's agent arrives at ours: or
// every check would say the same.
func (s *session) reachAgent(ctx context.Context) error {
	late := time.NewTimer(s.cfg.Wait)
	defer late.Stop()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		p := s.probe(ctx)
		c := p.ask("text")
		a := p.send(c)
		p.close()
		if s.agent.count(c.nonce) > 0 {
			return nil
		}
		if s.cfg.Wait > 0 {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
				return ctx.Err()
			case <-late.C:
			}
		}
		message := "a call of " + s.model + " at the endpoint did not arrive at the agent of this check"
		e := &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: message + ": it answered " + s.redact(a.String()),
			Explain: &agentbus.Explain{Next: "register http://" + s.agent.addr + "/v1 there as an OpenAI-compatible agent named " + s.model + ", and see that the key may call it"},
		}
		if errors.Is(a.err, errNoAnswer) {
			e.Message, e.Err = message, a.err
		}
		return e
	}
}

// perform runs one check, unless it needs what was not given.
func (s *session) perform(ctx context.Context, c Check) Result {
	r := Result{ID: c.ID, Rule: c.Rule, Title: c.Title}
	if r.Reason = s.lacks(c.Needs); r.Reason != "" {
		r.Outcome = Skip
		return r
	}
	p := s.probe(ctx)
	c.run(p)
	p.close()
	r.Findings, r.Outcome = p.findings, Pass
	if len(r.Findings) > 0 {
		r.Outcome = Fail
	}
	return r
}

func (s *session) lacks(n Need) string {
	var missing []string
	for _, need := range []struct {
		is   Need
		have bool
		what string
	}{
		{NeedAgent, s.agent != nil, "an agent of its own behind the endpoint (--agent)"},
		{NeedSecond, !s.cfg.SecondKey.IsZero(), "the key of another principal (--second-key-env)"},
		{NeedRelay, !s.cfg.RelayKey.IsZero(), "the key of an inter-agent caller (--relay-key-env)"},
	} {
		if n&need.is != 0 && !need.have {
			missing = append(missing, need.what)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return "it needs " + strings.Join(missing, " and ")
}

// A probe is one check at work. It has the timeout of a check, and belongs to
// one goroutine.
type probe struct {
	*session
	ctx      context.Context //nolint:containedctx // of the check, as long as the probe lives
	cancel   context.CancelFunc
	open     sync.WaitGroup // exchanges that are not over
	findings []Finding
}

func (s *session) probe(ctx context.Context) *probe {
	p := &probe{session: s}
	p.ctx, p.cancel = context.WithTimeout(ctx, s.cfg.Timeout)
	return p
}

// close ends every exchange of the check and waits for it.
func (p *probe) close() {
	p.cancel()
	p.open.Wait()
}

// limit is the depth at which the endpoint refuses.
func (p *probe) limit() int { return p.cfg.DepthLimit }

// fresh returns a text that nobody has used.
func fresh() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// madeUp returns a credential that nobody knows.
func (p *probe) madeUp() agentbus.Credential {
	c := agentbus.NewCredential("Bearer conformance-" + fresh() + fresh())
	p.secrets = append(p.secrets, c)
	return c
}

// ask is a call of our agent without lineage. The agent does as its behaviour
// says; lines are headers, written as they are.
func (p *probe) ask(behaviour string, lines ...string) *call {
	return p.chat(behaviour, "", lines)
}

// stream is ask with "stream": true.
func (p *probe) stream(behaviour string, lines ...string) *call {
	return p.chat(behaviour, `,"stream":true`, lines)
}

func (p *probe) chat(behaviour, more string, lines []string) *call {
	c := &call{method: "POST", path: "/v1/chat/completions", lines: lines, key: p.cfg.Key, nonce: fresh()}
	c.body = `{"model":` + strconv.Quote(p.model) + `,"messages":[{"role":"user","content":"` + prompt + c.nonce + " " + behaviour + `"}]` + more + `}`
	if p.agent != nil {
		p.agent.expect(c.nonce)
	}
	return c
}

// turn returns the headers of a turn that nobody has sent, and more lines.
func (p *probe) turn(lines ...string) []string {
	run := "conf-" + fresh()
	return append([]string{"x-tangle-runid: " + run, "x-tangle-turnid: " + run + ".t0.conformance"}, lines...)
}

// full is a lineage with every id, of a call made inside another one.
func (p *probe) full() []string {
	run := "conf-" + fresh()
	return []string{
		"x-tangle-forwarded-depth: 0", "x-tangle-runid: " + run, "x-tangle-turnid: " + run + ".t1.conformance",
		"x-tangle-parent-turnid: " + run + ".t0.origin", "x-tangle-speaker: conformance",
	}
}

// depth is the header of a depth.
func depth(n int) string { return "x-tangle-forwarded-depth: " + strconv.Itoa(n) }

// valueOf returns the value of the first of lines with that name.
func valueOf(lines []string, name string) string {
	for _, line := range lines {
		if n, v, _ := strings.Cut(line, ": "); strings.EqualFold(n, name) {
			return v
		}
	}
	return ""
}
