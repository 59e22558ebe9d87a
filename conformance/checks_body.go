package conformance

import (
	"strings"

	"github.com/agentbus/agentbus"
)

// unknownAgent is a call of an agent that nobody has. Its name is one that a
// relay could take for a mention.
func (p *probe) unknownAgent() *call {
	c := p.ask("text", p.turn()...)
	c.body = strings.Replace(c.body, `"model":"`, `"model":"@nobody-`+fresh()+`-`, 1)
	return c
}

// bodyChecks are about the form of refusals and the headers of every answer.
var bodyChecks = []Check{
	{"BODY-shape", "BODY", "a refusal is a JSON error with message, type, param, code and retryable", 0, func(p *probe) {
		a := p.send(p.ask("text", p.turn("x-tangle-forwarded-depth: x")...))
		p.expect(strings.HasPrefix(a.header.Get("Content-Type"), "application/json"), a, "Content-Type: application/json")
		for _, name := range []string{"message", "type", "param", "code", "retryable"} {
			p.expect(a.problem().Get(name).Exists(), a, `an error with "`+name+`"`)
		}
	}},
	{"BODY-explain", "BODY", "a depth refusal explains its rule, what was observed, and the limit", NeedAgent, func(p *probe) {
		a := p.tooDeep()
		e := a.problem().Get("explain")
		p.expect(e.Get("rule").Str == "P10", a, `"rule": "P10"`)
		p.expect(e.Get("observed").Int() == int64(p.limit()) && e.Get("limit").Int() == int64(p.limit()), a, "observed and limit as sent and configured")
		p.expect(e.Get("next").Str != "", a, "what to do next")
	}},
	{"BODY-ids", "BODY", "a refusal names the run and the turn", NeedAgent, func(p *probe) {
		turn := p.turn(depth(p.limit()))
		a := p.send(p.ask("text", turn...))
		p.expect(a.problem().Get("run_id").Str == valueOf(turn, "x-tangle-runid"), a, "run_id as sent")
		p.expect(a.problem().Get("turn_id").Str == valueOf(turn, "x-tangle-turnid"), a, "turn_id as sent")
	}},
	{"BODY-mention", "BODY", "a message holds no @name that a relay could take for a mention", 0, func(p *probe) {
		a := p.send(p.unknownAgent())
		m := a.problem().Get("message").Str
		p.expect(m != "" && !strings.Contains(m, "@nobody"), a, "a message without @nobody")
	}},
	{"HTTP-request-id", "HTTP", "every answer has an x-request-id of its own", 0, func(p *probe) {
		seen := map[string]bool{}
		for _, c := range []*call{
			p.ask("text", "x-tangle-forwarded-depth: x"), p.ask("text").as(agentbus.Credential{}), p.unknownAgent(), p.get("/v1/models"), p.ask("text"),
		} {
			a := p.send(c)
			id := a.header.Get("x-request-id")
			p.expect(id != "" && !seen[id], a, "an x-request-id that no other answer has, not "+p.shown(a.header.Values("x-request-id")))
			seen[id] = true
		}
	}},
	{"HTTP-echo", "HTTP", "run and turn are told back with an answer", NeedAgent, func(p *probe) {
		turn := p.turn()
		a := p.send(p.ask("text", turn...))
		p.header(a, "x-tangle-runid", valueOf(turn, "x-tangle-runid"))
		p.header(a, "x-tangle-turnid", valueOf(turn, "x-tangle-turnid"))
	}},
	{"HTTP-echo-stream", "HTTP", "run and turn are told back with a stream", NeedAgent, func(p *probe) {
		turn := p.turn()
		a := p.send(p.stream("text", turn...))
		p.header(a, "x-tangle-runid", valueOf(turn, "x-tangle-runid"))
		p.header(a, "x-tangle-turnid", valueOf(turn, "x-tangle-turnid"))
	}},
	{"HTTP-echo-refusal", "HTTP", "run and turn are told back with a refusal", NeedAgent, func(p *probe) {
		turn := p.turn(depth(p.limit()))
		a := p.send(p.ask("text", turn...))
		p.header(a, "x-tangle-runid", valueOf(turn, "x-tangle-runid"))
		p.header(a, "x-tangle-turnid", valueOf(turn, "x-tangle-turnid"))
	}},
	{"HTTP-usage", "HTTP", "an answer tells its attempts and its cost", NeedAgent, func(p *probe) {
		a := p.send(p.ask("text", p.turn()...))
		p.served(a)
		p.header(a, "x-agentbus-attempts", "1")
		p.amount(a, "x-agentbus-cost-usd", a.header.Get("x-agentbus-cost-usd"))
	}},
	{"HTTP-trailer", "HTTP", "a stream tells its cost in a trailer, to who takes trailers", NeedAgent, func(p *probe) {
		a := p.send(p.stream("text", p.turn("TE: trailers", "Connection: TE")...))
		p.served(a)
		p.amount(a, "trailer x-agentbus-cost-usd", a.trailer.Get("x-agentbus-cost-usd"))
	}},
	{"HTTP-retry-after", "HTTP", "a broken agent is agent_unavailable, which tells when to retry", NeedAgent, func(p *probe) {
		a := p.send(p.ask("drop", p.turn()...))
		p.expect((a.status == 502 || a.status == 503) && a.code() == "agent_unavailable", a, "502 agent_unavailable")
		p.expect(a.header.Get("Retry-After") != "" && a.header.Get("retry-after-ms") != "", a, "Retry-After and retry-after-ms")
		p.noHeader(a, "x-should-retry")
		p.expect(a.problem().Get("retryable").Raw == "true", a, `"retryable": true`)
	}},
	{"P25-zero", "P25", "version 0 is the version of no header", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("x-tangle-protocol-version: 0")...)
		p.arrived(c, p.send(c))
	}},
	{"P25-other", "P25", "any other version is refused, and the supported ones are listed", 0, func(p *probe) {
		for _, v := range []string{"1", "0.1", "v0", "00"} {
			c := p.ask("text", p.turn("x-tangle-protocol-version: "+v)...)
			a := p.send(c)
			if p.refused(c, a, 400, "unsupported_version") {
				p.expect(a.problem().Get("explain.supported.0").Str == "0", a, `"supported": ["0"]`)
			}
		}
	}},
	{"P25-additive", "P25", "an additive header that nobody knows is no error", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("x-agentbus-conformance: 1", "x-tangle-conformance: 1")...)
		p.arrived(c, p.send(c))
	}},
}

// amount expects a sum of money.
func (p *probe) amount(a *answer, what, got string) {
	p.expect(money.MatchString(got), a, what+" as an amount, not "+p.shown([]string{got}))
}
