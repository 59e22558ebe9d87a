package conformance

import (
	"strconv"
	"strings"
)

// nameChecks are about the headers of the protocol as such.
var nameChecks = []Check{
	{"P1-depth", "P1", "a depth in capitals is read", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("X-TANGLE-FORWARDED-DEPTH: "+strconv.Itoa(p.limit()))...)
		p.refused(c, p.send(c), 429, "bridge_depth_exceeded")
	}},
	{"P1-lineage", "P1", "run and turn in mixed case are read and passed on", NeedAgent, func(p *probe) {
		turn := p.turn()
		c := p.ask("text", "X-Tangle-RunId: "+valueOf(turn, "x-tangle-runid"), "X-tangle-TURNID: "+valueOf(turn, "x-tangle-turnid"))
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.atAgent(a, in, "x-tangle-runid", valueOf(turn, "x-tangle-runid"))
			p.atAgent(a, in, "x-tangle-turnid", valueOf(turn, "x-tangle-turnid"))
		}
	}},
	{"P2-twice-depth", "P2", "a depth that is sent twice is refused", 0, twice("x-tangle-forwarded-depth")},
	{"P2-twice-run", "P2", "a run that is sent twice is refused", 0, twice("x-tangle-runid")},
	{"P2-twice-turn", "P2", "a turn that is sent twice is refused", 0, twice("x-tangle-turnid")},
	{"P2-twice-parent", "P2", "a parent turn that is sent twice is refused", 0, twice("x-tangle-parent-turnid")},
	{"P2-twice-speaker", "P2", "a speaker that is sent twice is refused", 0, twice("x-tangle-speaker")},
	{"P2-twice-credential", "P2", "a forwarded credential that is sent twice is refused", 0, func(p *probe) {
		c := p.ask("text", p.full()...).forwarding(p.madeUp()).with("x-tangle-forwarded-authorization: Bearer somebody")
		p.refused(c, p.send(c), 400, "duplicate_header")
	}},
	{"P2-twice-spelled", "P2", "one header in two spellings is sent twice", 0, func(p *probe) {
		lines := p.full()
		c := p.ask("text", lines...).with("X-Tangle-RunId: " + valueOf(lines, "x-tangle-runid"))
		p.refused(c, p.send(c), 400, "duplicate_header")
	}},
	{"P2-list-depth", "P2", "a list of depths is refused before its grammar is looked at", 0, list("x-tangle-forwarded-depth")},
	{"P2-list-run", "P2", "a list of runs is refused", 0, list("x-tangle-runid")},
	{"P2-list-turn", "P2", "a list of turns is refused", 0, list("x-tangle-turnid")},
	{"P2-list-parent", "P2", "a list of parent turns is refused", 0, list("x-tangle-parent-turnid")},
	{"P2-list-speaker", "P2", "a list of speakers is refused", 0, list("x-tangle-speaker")},
	{"P2-trace", "P2", "a malformed traceparent is dropped, and no error", NeedAgent, func(p *probe) {
		for _, bad := range []string{"00-nonsense", "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01"} {
			c := p.ask("text", p.turn("traceparent: "+bad)...)
			a := p.send(c)
			if in, ok := p.arrived(c, a); ok {
				p.expect(in.header.Get("traceparent") != bad, a, "the agent does not get traceparent: "+bad)
			}
		}
	}},
	{"P5-stripped", "P5", "underscore twins of protocol headers are not forwarded", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("x_tangle_forwarded_depth: 0", "X_Tangle_RunID: another", "x-tangle_turnid: another.t0.x", "x_tangle_forwarded_authorization: Bearer another")...)
		a := p.send(c)
		in, ok := p.arrived(c, a)
		if !ok {
			return
		}
		for name, values := range in.header {
			if strings.Contains(name, "_") && strings.HasPrefix(strings.ToLower(name), "x") && strings.Contains(strings.ToLower(name), "tangle") {
				p.fault(a, "the agent got "+name+": "+p.shown(values), "the agent gets no twin")
			}
		}
	}},
	{"P5-unread", "P5", "an underscore twin is not read as the depth", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("x_tangle_forwarded_depth: "+strconv.Itoa(p.limit()))...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.atAgent(a, in, "x-tangle-forwarded-depth", "1")
		}
	}},
	{"P6-depth", "P6", "a Connection header that names the depth is refused", 0, connection("x-tangle-forwarded-depth")},
	{"P6-credential", "P6", "a Connection header that names the forwarded credential is refused", 0, connection("x-tangle-forwarded-authorization")},
	{"P6-list", "P6", "a protocol header is found behind others in Connection, in any case", 0, connection("keep-alive, X-Tangle-RunId")},
}

// twice sends a lineage with one header two times.
func twice(name string) func(*probe) {
	return func(p *probe) {
		lines := p.full()
		c := p.ask("text", lines...).with(name + ": " + valueOf(lines, name))
		p.refused(c, p.send(c), 400, "duplicate_header")
	}
}

// list sends a lineage with a list for one header.
func list(name string) func(*probe) {
	return func(p *probe) {
		lines := p.full()
		for i, line := range lines {
			if strings.HasPrefix(line, name+": ") {
				lines[i] += ", " + valueOf(lines, name)
			}
		}
		c := p.ask("text", lines...)
		p.refused(c, p.send(c), 400, "duplicate_header")
	}
}

func connection(value string) func(*probe) {
	return func(p *probe) {
		c := p.ask("text", p.full()...).with("Connection: " + value)
		p.refused(c, p.send(c), 400, "invalid_lineage")
	}
}
