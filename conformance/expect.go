package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// fault adds a finding about an answer.
func (p *probe) fault(a *answer, got, want string) {
	const most = 8 // of one check; the first tell enough
	if len(p.findings) < most {
		p.findings = append(p.findings, Finding{Sent: p.redact(a.sent), Got: p.redact(got), Want: p.redact(want)})
	}
}

// expect adds a finding unless ok.
func (p *probe) expect(ok bool, a *answer, want string) bool {
	if !ok {
		p.fault(a, a.String(), want)
	}
	return ok
}

// refused expects a refusal of the endpoint itself. Our agent must not have seen
// the call.
func (p *probe) refused(c *call, a *answer, status int, code agentbus.Code) bool {
	return p.stopped(c, a, a.status == status && a.code() == string(code), fmt.Sprintf("%d %s", status, code))
}

// stopped expects ok of an answer, and that our agent has not seen the call.
func (p *probe) stopped(c *call, a *answer, ok bool, want string) bool {
	got := a.String()
	if p.agent != nil && p.agent.count(c.nonce) > 0 {
		ok, got, want = false, got+", and the call arrived at the agent", want+", and no call of the agent"
	}
	if !ok {
		p.fault(a, got, want)
	}
	return ok
}

// served expects a whole answer of status 200.
func (p *probe) served(a *answer) bool {
	return p.expect(a.status == 200 && a.err == nil, a, "200 and a whole answer")
}

// arrived expects a whole answer that our agent gave in one execution, and
// returns what arrived there.
func (p *probe) arrived(c *call, a *answer) (*arrival, bool) {
	if !p.served(a) || !p.executed(c, a, 1) {
		return nil, false
	}
	return p.agent.first(c.nonce), true
}

// executed expects that our agent was asked n times.
func (p *probe) executed(c *call, a *answer, n int) bool {
	got := p.agent.count(c.nonce)
	if got != n {
		p.fault(a, fmt.Sprintf("%s; the agent was called %d times", a, got), fmt.Sprintf("%d calls of the agent", n))
	}
	return got == n
}

// same expects that a duplicate got what the first did, to the byte.
func (p *probe) same(first, again *answer) {
	if first.status != again.status || first.body != again.body || again.err != nil {
		p.fault(again, "first "+first.String()+", then "+again.String(), "the same status and the same bytes")
	}
}

// header expects one value of a header of an answer.
func (p *probe) header(a *answer, name, want string) { p.says(a, name, want) }

// noHeader expects that an answer has no such header.
func (p *probe) noHeader(a *answer, name string) { p.says(a, name) }

func (p *probe) says(a *answer, name string, want ...string) {
	if got := a.header.Values(name); !slices.Equal(got, want) {
		p.fault(a, fmt.Sprintf("%s; %s is %s", a, name, p.shown(got)), name+" is "+p.shown(want))
	}
}

// replayed expects that the same call again gets the answer of before from
// memory: after n executions in all there is no other.
func (p *probe) replayed(c *call, before *answer, n int) {
	again := p.send(c)
	p.same(before, again)
	p.executed(c, again, n)
}

// atAgent expects one value of a header at our agent; "": that it is not there.
func (p *probe) atAgent(a *answer, in *arrival, name, want string) {
	wanted := []string{want}
	if want == "" {
		wanted = nil
	}
	if got := in.header.Values(name); !slices.Equal(got, wanted) {
		p.fault(a, "the agent got "+name+": "+p.shown(got), "the agent gets "+name+": "+p.shown(wanted))
	}
}

// shown writes values of a header for a finding.
func (s *session) shown(values []string) string {
	if len(values) == 0 {
		return "absent"
	}
	safe := make([]string, len(values))
	for i, v := range values {
		safe[i] = strconv.Quote(s.redact(v))
	}
	return clip(strings.Join(safe, " and "), 200)
}
