package conformance

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// onceChecks are about a turn that comes again.
var onceChecks = []Check{
	{"G20-once", "G20", "the same turn again is answered without calling the agent", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		first := p.send(c)
		p.served(first)
		p.replayed(c, first, 1)
	}},
	{"G20-run", "G20", "the same turn id in another run is another call", NeedAgent, func(p *probe) {
		c := p.ask("text", "x-tangle-turnid: conf.t0.conformance")
		p.twoCalls(c.with("x-tangle-runid: conf-"+fresh()), c.with("x-tangle-runid: conf-"+fresh()))
	}},
	{"G20-parent", "G20", "the same turn inside another turn is another call", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		p.twoCalls(c.with("x-tangle-parent-turnid: conf.t0.a"), c.with("x-tangle-parent-turnid: conf.t1.a"))
	}},
	{"G20-path", "G20", "the same turn on another path is another call", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		p.twoCalls(c.with("x-agentbus-path: "+fresh()), c.with("x-agentbus-path: "+fresh()))
	}},
	{"G20-mismatch", "G20", "the same turn with another request is refused", NeedAgent, func(p *probe) {
		turn := p.turn()
		p.served(p.send(p.ask("text", turn...)))
		c := p.ask("text", turn...)
		p.refused(c, p.send(c), 422, "turn_mismatch")
	}},
	{"G20-mismatch-kept", "G20", "a mismatch leaves the first answer as it was", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		first := p.send(c)
		p.send(p.ask("text", c.lines...))
		p.replayed(c, first, 1)
	}},
	{"G20-key", "G20", "an Idempotency-Key stands in the place of a missing turn", NeedAgent, func(p *probe) {
		c := p.ask("text", "Idempotency-Key: "+fresh())
		p.replayed(c, p.send(c), 1)
	}},
	{"G20-key-in-run", "G20", "an Idempotency-Key counts within the run that was sent", NeedAgent, func(p *probe) {
		c := p.ask("text", "Idempotency-Key: "+fresh())
		p.twoCalls(c.with("x-tangle-runid: conf-"+fresh()), c.with("x-tangle-runid: conf-"+fresh()))
	}},
	{"G20-keys", "G20", "another Idempotency-Key is another call", NeedAgent, func(p *probe) {
		c := p.ask("text")
		p.twoCalls(c.with("Idempotency-Key: "+fresh()), c.with("Idempotency-Key: "+fresh()))
	}},
	{"G20-key-mismatch", "G20", "an Idempotency-Key with another request is refused", NeedAgent, func(p *probe) {
		line := "Idempotency-Key: " + fresh()
		p.served(p.send(p.ask("text", line)))
		c := p.ask("text", line)
		p.refused(c, p.send(c), 422, "turn_mismatch")
	}},
}

// twoCalls expects that two calls with one body are both executed, and kept.
func (p *probe) twoCalls(one, other *call) {
	first, second := p.send(one), p.send(other)
	p.served(first)
	p.served(second)
	p.expect(first.body != second.body, second, "an answer of its own")
	p.executed(one, second, 2)
	p.replayed(one, first, 2)
	p.replayed(other, second, 2)
}

// keyChecks are about whose a key is, and when it is free again.
var keyChecks = []Check{
	{"G20-payer", "G20", "the same ids of two payers are two calls, and neither reads the other's answer", NeedAgent | NeedSecond, func(p *probe) {
		c := p.ask("text", p.turn()...)
		p.twoCalls(c, c.as(p.cfg.SecondKey))
	}},
	{"G20-payer-key", "G20", "the same Idempotency-Key of two payers is two calls", NeedAgent | NeedSecond, func(p *probe) {
		c := p.ask("text", "Idempotency-Key: "+fresh())
		p.twoCalls(c, c.as(p.cfg.SecondKey))
	}},
	{"G20-payer-mismatch", "G20", "a payer does not learn of another's turn by a mismatch", NeedAgent | NeedSecond, func(p *probe) {
		turn := p.turn()
		p.served(p.send(p.ask("text", turn...)))
		c := p.ask("text", turn...).as(p.cfg.SecondKey)
		p.arrived(c, p.send(c))
	}},
	{"G20-freed-500", "G20", "an agent's 500 frees the turn", NeedAgent, freed("500")},
	{"G20-freed-503", "G20", "an agent's 503 frees the turn", NeedAgent, freed("503")},
	{"G20-freed-429", "G20", "an agent's 429 frees the turn", NeedAgent, freed("429")},
	{"G20-freed-drop", "G20", "an agent that hangs up frees the turn", NeedAgent, func(p *probe) {
		c := p.ask("drop", p.turn()...)
		p.send(c)
		second := p.send(c)
		p.served(second)
		p.replayed(c, second, 2)
	}},
	{"G23-passes", "G23", "an agent's own error passes as it is, 5xx too", NeedAgent, func(p *probe) {
		for _, n := range []string{"400", "404", "429", "500", "503"} {
			c := p.ask("status:"+n, p.turn()...)
			a := p.send(c)
			if p.executed(c, a, 1) {
				p.expect(strconv.Itoa(a.status) == n && a.body == p.agent.first(c.nonce).told, a, n+" with the agent's own body")
			}
		}
	}},
	{"G23-final", "G23", "an agent's 400 is a final answer: the same turn again gets it from memory", NeedAgent, func(p *probe) {
		c := p.ask("status:400", p.turn()...)
		p.replayed(c, p.send(c), 1)
	}},
	{"G23-identical", "G23", "a replay has the status, the bytes and the type of the first answer", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		first, again := p.send(c), p.send(c)
		p.served(first)
		p.same(first, again)
		p.header(again, "Content-Type", first.header.Get("Content-Type"))
	}},
	{"G23-stream", "G23", "a stream that is over is replayed to the byte", NeedAgent, func(p *probe) {
		c := p.stream("text", p.turn()...)
		first, again := p.send(c), p.send(c)
		p.served(first)
		p.same(first, again)
		p.executed(c, again, 1)
		p.header(again, "Content-Type", first.header.Get("Content-Type"))
	}},
	{"G23-told", "G23", "a replay says so: x-agentbus-replay: hit, and only a replay", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		p.noHeader(p.send(c), "x-agentbus-replay")
		p.header(p.send(c), "x-agentbus-replay", "hit")
	}},
	{"G23-request-id", "G23", "a replay has the request id of the call that was executed", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		first, again := p.send(c), p.send(c)
		if p.expect(first.header.Get("x-request-id") != "", first, "an x-request-id") {
			p.header(again, "x-request-id", first.header.Get("x-request-id"))
		}
	}},
	{"G23-cost", "G23", "a replay costs nothing", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		p.served(p.send(c))
		a := p.send(c)
		got := a.header.Get("x-agentbus-cost-usd")
		p.expect(got != "" && strings.Trim(got, "0.") == "", a, "x-agentbus-cost-usd of 0, not "+p.shown([]string{got}))
	}},
}

// freed expects that an agent's error passes, and that the turn is executed again
// and kept then.
func freed(status string) func(*probe) {
	return func(p *probe) {
		c := p.ask("once:"+status, p.turn()...)
		first := p.send(c)
		p.expect(strconv.Itoa(first.status) == status, first, status)
		second := p.send(c)
		p.served(second)
		p.replayed(c, second, 2)
	}
}

// attachChecks are about a turn that comes again while it is executed.
var attachChecks = []Check{
	{"G22-whole", "G22", "a duplicate in flight waits for the answer of the first", NeedAgent, func(p *probe) { p.attached(p.ask("held", p.turn()...), "") }},
	{"G22-stream", "G22", "a duplicate of a stream that has not begun gets that stream", NeedAgent, func(p *probe) { p.attached(p.stream("held", p.turn()...), "") }},
	{"G22-middle", "G22", "a duplicate in the middle of a stream gets the events so far, and then the live ones", NeedAgent, func(p *probe) {
		p.attached(p.stream("handshake", p.turn()...), "part 1")
	}},
	{"G22-key", "G22", "a duplicate in flight by Idempotency-Key waits too", NeedAgent, func(p *probe) { p.attached(p.ask("held", "Idempotency-Key: "+fresh()), "") }},
	{"G22-mismatch", "G22", "another request for a turn in flight is refused at once", NeedAgent, func(p *probe) {
		c := p.ask("held", p.turn()...)
		first := p.start(c)
		p.agent.wait(p.ctx, c.nonce, 1)
		other := p.ask("text", c.lines...)
		p.refused(other, p.send(other), 422, "turn_mismatch")
		p.agent.release(c.nonce)
		p.served(first.wait())
	}},
}

// attached sends a call twice while the agent holds its answer, of which the
// given text is out already, and expects one execution and the same bytes.
func (p *probe) attached(c *call, out string) {
	defer p.agent.release(c.nonce)
	first := p.start(c)
	if !p.agent.wait(p.ctx, c.nonce, 1) || out != "" && !first.until(out) {
		p.fault(first.wait(), first.wait().String(), "a call of the agent, and what it has told so far")
		return
	}
	second := p.start(c)
	if out != "" {
		if !second.until(out) {
			p.agent.release(c.nonce)
			p.fault(second.wait(), second.wait().String(), "the events so far, while the agent waits with the rest")
			return
		}
	} else {
		p.grace(c)
	}
	p.agent.release(c.nonce)
	a, b := first.wait(), second.wait()
	p.served(a)
	p.same(a, b)
	p.executed(c, b, 1)
	how := b.header.Get("x-agentbus-replay")
	p.expect(how == "attached" || how == "hit", b, "x-agentbus-replay: attached, not "+p.shown(b.header.Values("x-agentbus-replay")))
}

// grace gives the endpoint a moment to do with a duplicate what it must not. One
// that has not read it by then finds the answer of the first, which is as good.
func (p *probe) grace(c *call) {
	ctx, cancel := context.WithTimeout(p.ctx, 100*time.Millisecond)
	defer cancel()
	p.agent.wait(ctx, c.nonce, 2)
}
