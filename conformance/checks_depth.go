package conformance

import (
	"strconv"
	"strings"
)

// depthChecks are about the grammar of a depth.
var depthChecks = []Check{
	{"P3-signs", "P3", "a depth with a sign is refused", 0, badDepth("-1", "+5", "-0")},
	{"P3-notations", "P3", "a depth in another notation than digits is refused", 0, badDepth("1e3", "0x10", "1.0", "1_0")},
	{"P3-words", "P3", "a depth that is no number is refused", 0, badDepth("one", "1 2", "NaN", "null", `"1"`)},
	{"P3-large", "P3", "a depth of more than nine digits is refused", 0, badDepth("1000000000", "18446744073709551616", "0000000001")},
	{"P3-digits", "P3", "digits of other scripts are refused", 0, badDepth("١", "２")},
	{"P3-trim", "P3", "spaces and tabs around a depth are no part of it", NeedAgent, arrivesAs("1", "  0  ", "\t0", "0 \t")},
	{"P3-empty", "P3", "an empty depth is 0", NeedAgent, arrivesAs("1", "", " ", "\t")},
	{"P3-zeros", "P3", "leading zeros are digits", NeedAgent, arrivesAs("1", "0", "00", "000000000")},
}

func badDepth(values ...string) func(*probe) {
	return func(p *probe) {
		for _, v := range values {
			c := p.ask("text", p.turn("x-tangle-forwarded-depth: "+v)...)
			p.refused(c, p.send(c), 400, "invalid_depth")
		}
	}
}

func arrivesAs(want string, values ...string) func(*probe) {
	return func(p *probe) {
		for _, v := range values {
			c := p.ask("text", p.turn("x-tangle-forwarded-depth: "+v)...)
			a := p.send(c)
			if in, ok := p.arrived(c, a); ok {
				p.atAgent(a, in, "x-tangle-forwarded-depth", want)
			}
		}
	}
}

// limitChecks are about the depth at which a call is refused.
var limitChecks = []Check{
	{"P10-below", "P10", "depths below the limit are served, each one hop deeper", NeedAgent, func(p *probe) {
		for n := range p.limit() {
			if n > 8 && n < p.limit()-1 { // of a deep limit, both ends will do
				continue
			}
			c := p.ask("text", p.turn(depth(n))...)
			a := p.send(c)
			if in, ok := p.arrived(c, a); ok {
				p.atAgent(a, in, "x-tangle-forwarded-depth", strconv.Itoa(n+1))
			}
		}
	}},
	{"P10-limit", "P10", "a call that arrives at the limit is refused, and the agent not called", NeedAgent, tooDeep(0)},
	{"P10-above", "P10", "a call that arrives above the limit is refused", NeedAgent, tooDeep(1, 2, 95)},
	{"P10-largest", "P10", "the largest depth there is is refused", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("x-tangle-forwarded-depth: 999999999")...)
		p.refused(c, p.send(c), 429, "bridge_depth_exceeded")
	}},
	{"P10-stream", "P10", "a call for a stream is refused alike, with a JSON body", NeedAgent, func(p *probe) {
		c := p.stream("text", p.turn(depth(p.limit()))...)
		a := p.send(c)
		if p.refused(c, a, 429, "bridge_depth_exceeded") {
			p.expect(strings.HasPrefix(a.header.Get("Content-Type"), "application/json"), a, "Content-Type: application/json")
		}
	}},
	{"P11-body", "P11", "the refusal is 429 with code, type, and no param", NeedAgent, func(p *probe) {
		a := p.tooDeep()
		e := a.problem()
		p.expect(a.status == 429 && e.Get("code").Str == "bridge_depth_exceeded", a, `429 and code "bridge_depth_exceeded"`)
		p.expect(e.Get("type").Str == "invalid_request_error", a, `type "invalid_request_error"`)
		p.expect(e.Get("param").Exists() && e.Get("param").Value() == nil, a, "param null")
	}},
	{"P12-retry", "P12", "a depth refusal tells clients not to retry", NeedAgent, func(p *probe) {
		a := p.tooDeep()
		p.header(a, "x-should-retry", "false")
		p.noHeader(a, "Retry-After")
		p.noHeader(a, "retry-after-ms")
		p.expect(a.problem().Get("retryable").Raw == "false", a, `"retryable": false`)
	}},
	{"P12-terminal", "P12", "every other terminal refusal tells clients so too", 0, func(p *probe) {
		for _, a := range []*answer{
			p.send(p.ask("text", p.turn("x-tangle-forwarded-depth: x")...)),
			p.send(p.ask("text", p.turn("x-tangle-runid: again")...)),
			p.send(p.ask("text").as(p.madeUp())),
			p.send(p.unknownAgent()),
		} {
			if p.expect(a.status >= 400 && a.status < 500, a, "a refusal with a status of 4xx") {
				p.header(a, "x-should-retry", "false")
				p.noHeader(a, "Retry-After")
			}
		}
	}},
	{"P12-repeat", "P12", "the same refused turn again is refused again, without a call of the agent", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn(depth(p.limit()))...)
		for range 3 {
			p.refused(c, p.send(c), 429, "bridge_depth_exceeded")
		}
	}},
	{"P12-below", "P12", "a call below the limit is never answered from a remembered refusal", NeedAgent, func(p *probe) {
		turn := p.turn()
		c := p.ask("text", turn...)
		p.refused(c, p.send(c.with(depth(p.limit()))), 429, "bridge_depth_exceeded")
		if a := p.send(c.with(depth(p.limit() - 1))); p.served(a) {
			p.executed(c, a, 1)
		}
	}},
}

func tooDeep(beyond ...int) func(*probe) {
	return func(p *probe) {
		for _, n := range beyond {
			c := p.ask("text", p.turn(depth(p.limit()+n))...)
			p.refused(c, p.send(c), 429, "bridge_depth_exceeded")
		}
	}
}

// tooDeep returns the answer to a call at the limit.
func (p *probe) tooDeep() *answer { return p.send(p.ask("text", p.turn(depth(p.limit()))...)) }
