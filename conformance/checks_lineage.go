package conformance

import (
	"regexp"
	"strconv"
	"strings"
)

// idChecks are about the grammar of ids.
var idChecks = []Check{
	{"P4-longest", "P4", "a run of 512 characters is served and passed on whole", NeedAgent, func(p *probe) { p.runArrives(long(512)) }},
	{"P4-edges", "P4", "every visible character but comma and quote may stand in an id", NeedAgent, func(p *probe) { p.runArrives("!#$%&'()*+-./:;<=>?@[]^_`{|}~" + fresh()) }},
	{"P4-too-long", "P4", "a run of 513 characters is refused", 0, badID("x-tangle-runid", long(513))},
	{"P4-quote", "P4", "a run with a double quote is refused", 0, badID("x-tangle-runid", `a"b`, `"`)},
	{"P4-space", "P4", "a run with a space or a tab in it is refused", 0, badID("x-tangle-runid", "a b", "a\tb")},
	{"P4-non-ascii", "P4", "a run that is not ASCII is refused", 0, badID("x-tangle-runid", "rün", "\xff", "走")},
	{"P4-empty", "P4", "an empty run is refused", 0, badID("x-tangle-runid", "")},
	{"P4-turn", "P4", "a turn is an id too", 0, badID("x-tangle-turnid", long(513), `a"b`, "a b", "türn", "")},
	{"P4-parent", "P4", "a parent turn is an id too", 0, badID("x-tangle-parent-turnid", long(513), `a"b`, "a b", "türn", "")},
	{"P4-control", "P4", "control characters in an id are refused", 0, func(p *probe) {
		for _, bad := range []string{"a\x01b", "a\x7fb", "a\x1b[31mb"} {
			c := p.ask("text", "x-tangle-runid: "+bad)
			a := p.send(c)
			p.stopped(c, a, a.status == 400, "400") // an HTTP library may be faster than the gateway
		}
	}},
}

func long(n int) string { return fresh() + strings.Repeat("x", n-16) }

// runArrives expects a run to be served and passed on as it is.
func (p *probe) runArrives(run string) {
	c := p.ask("text", "x-tangle-runid: "+run)
	a := p.send(c)
	if in, ok := p.arrived(c, a); ok {
		p.atAgent(a, in, "x-tangle-runid", run)
	}
}

// badID sends a lineage in which one id is not one.
func badID(name string, values ...string) func(*probe) {
	return func(p *probe) {
		for _, v := range values {
			lines := p.full()
			for i, line := range lines {
				if strings.HasPrefix(line, name+": ") {
					lines[i] = name + ": " + v
				}
			}
			c := p.ask("text", lines...)
			p.refused(c, p.send(c), 400, "invalid_lineage")
		}
	}
}

var validID = regexp.MustCompile(`^[\x21\x23-\x2b\x2d-\x7e]{1,512}$`)

// absenceChecks are about ids that are not sent.
var absenceChecks = []Check{
	{"P7-mint", "P7", "a run and a turn are minted, told, and passed on", NeedAgent, func(p *probe) {
		c := p.ask("text")
		a := p.send(c)
		in, ok := p.arrived(c, a)
		if !ok {
			return
		}
		for _, name := range []string{"x-tangle-runid", "x-tangle-turnid"} {
			id := a.header.Get(name)
			if p.expect(validID.MatchString(id), a, "a valid id in "+name+" of the answer, which is "+p.shown(a.header.Values(name))) {
				p.atAgent(a, in, name, id)
			}
		}
		p.expect(strings.HasPrefix(a.header.Get("x-tangle-turnid"), a.header.Get("x-tangle-runid")+".t"), a, "a turn id that begins with the run, .t and an index")
	}},
	{"P7-distinct", "P7", "two calls without ids are two runs, and both executed", NeedAgent, func(p *probe) {
		c := p.ask("text")
		first, second := p.send(c), p.send(c)
		p.served(second)
		p.expect(first.header.Get("x-tangle-runid") != second.header.Get("x-tangle-runid"), second, "another run than that of the same call before: "+p.shown(first.header.Values("x-tangle-runid")))
		p.executed(c, second, 2)
	}},
	{"P7-turn-minted", "P7", "a run without a turn is kept, and its turn minted", NeedAgent, func(p *probe) {
		run := "conf-" + fresh()
		c := p.ask("text", "x-tangle-runid: "+run)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.header(a, "x-tangle-runid", run)
			turn := a.header.Get("x-tangle-turnid")
			p.expect(regexp.MustCompile(`^`+run+`\.t\d+\.[a-z0-9_-]+$`).MatchString(turn), a, "x-tangle-turnid: "+run+".t<n>.<target>, not "+p.shown(a.header.Values("x-tangle-turnid")))
			p.atAgent(a, in, "x-tangle-runid", run)
			p.atAgent(a, in, "x-tangle-turnid", turn)
		}
	}},
	{"P7-turns-distinct", "P7", "minted turns of one run are never the same, nor deduplicated", NeedAgent, func(p *probe) {
		c := p.ask("text", "x-tangle-runid: conf-"+fresh())
		first, second := p.send(c), p.send(c)
		p.expect(first.header.Get("x-tangle-turnid") != second.header.Get("x-tangle-turnid"), second, "another turn than "+p.shown(first.header.Values("x-tangle-turnid")))
		p.executed(c, second, 2)
	}},
	{"P7-turn-alone", "P7", "a turn without a run is refused", 0, func(p *probe) {
		c := p.ask("text", "x-tangle-turnid: conf-"+fresh()+".t0.x")
		p.refused(c, p.send(c), 400, "invalid_lineage")
	}},
	{"P7-depth-kept", "P7", "a depth without a run is kept, not begun anew", NeedAgent, func(p *probe) {
		n := min(2, p.limit()-1)
		c := p.ask("text", depth(n))
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.atAgent(a, in, "x-tangle-forwarded-depth", strconv.Itoa(n+1))
		}
	}},
	{"P7-limit", "P7", "a call without a run is refused at the limit", NeedAgent, func(p *probe) {
		c := p.ask("text", depth(p.limit()))
		p.refused(c, p.send(c), 429, "bridge_depth_exceeded")
	}},
	{"P7-key", "P7", "the replay of a call with an Idempotency-Key tells the ids first minted", NeedAgent, func(p *probe) {
		c := p.ask("text", "Idempotency-Key: "+fresh())
		first, again := p.send(c), p.send(c)
		for _, name := range []string{"x-tangle-runid", "x-tangle-turnid"} {
			if p.expect(first.header.Get(name) != "", first, name+" in the answer") {
				p.header(again, name, first.header.Get(name))
			}
		}
	}},
}

// forwardChecks are about what a hop passes on.
var forwardChecks = []Check{
	{"P8-depth", "P8", "no depth is passed on as 1, and any other as one more", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.atAgent(a, in, "x-tangle-forwarded-depth", "1")
		}
		n := p.limit() - 1
		c = p.ask("text", p.turn(depth(n))...)
		a = p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.atAgent(a, in, "x-tangle-forwarded-depth", strconv.Itoa(n+1))
		}
	}},
	{"P8-ids", "P8", "run, turn, parent and speaker are passed on unchanged, once each", NeedAgent, func(p *probe) {
		lines := p.full()
		c := p.ask("text", lines...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			for _, name := range []string{"x-tangle-runid", "x-tangle-turnid", "x-tangle-parent-turnid", "x-tangle-speaker"} {
				p.atAgent(a, in, name, valueOf(lines, name))
			}
		}
	}},
	{"P8-top", "P8", "no parent is made up for a call at top level", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.atAgent(a, in, "x-tangle-parent-turnid", "")
			p.atAgent(a, in, "x-agentbus-path", "")
		}
	}},
	{"P8-path", "P8", "x-agentbus-path is passed on unchanged", NeedAgent, func(p *probe) {
		path := fresh()
		c := p.ask("text", p.full()...).with("x-agentbus-path: " + path)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.atAgent(a, in, "x-agentbus-path", path)
		}
	}},
	{"HEADERS-trace", "HEADERS", "a trace goes on: the same trace id, and its state", NeedAgent, func(p *probe) {
		id := fresh() + fresh()
		c := p.ask("text", p.turn("traceparent: 00-"+id+"-00f067aa0ba902b7-01", "tracestate: conformance=1")...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			got := in.header.Values("traceparent")
			p.expect(len(got) == 1 && strings.HasPrefix(got[0], "00-"+id+"-"), a, "the agent gets a traceparent of the same trace, not "+p.shown(got))
			p.expect(strings.Contains(in.header.Get("tracestate"), "conformance=1"), a, "the agent gets the tracestate")
		}
	}},
}
