package conformance

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// proxyChecks are about what passes through.
var proxyChecks = []Check{
	{"G9-fields", "G9", "fields that nobody knows survive", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		c.body = strings.TrimSuffix(c.body, "}") + `,"x_conformance":{"deep":[1,2.50,null]},"temperature":0.30}`
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.expect(gjson.Get(in.body, "x_conformance").Raw == `{"deep":[1,2.50,null]}`, a, "the agent gets x_conformance, not "+clip(in.body, 200))
		}
	}},
	{"G9-bytes", "G9", "the bytes of the body are passed on as they came, but for the model", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		model := strconv.Quote(p.model)
		before, after := "{ \"n\" : 1.0e2,\n\t\"model\" : ", ` , "z":"\u00e9\/é", "a":[ ], "big":12345678901234567890.10 ,`+strings.TrimPrefix(c.body, `{"model":`+model+",")+"\n"
		c.body = before + model + after
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.expect(strings.HasPrefix(in.body, before+`"`) && strings.HasSuffix(in.body, `"`+after), a, "the agent gets the same bytes, not "+clip(in.body, 300))
		}
	}},
	{"G9-answer", "G9", "an answer passes to the byte, with its status and type", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.expect(a.body == in.told, a, "the bytes of the agent: "+clip(in.told, 200))
			p.expect(strings.HasPrefix(a.header.Get("Content-Type"), "application/json"), a, "Content-Type: application/json")
		}
	}},
	{"G9-stream", "G9", "a stream passes to the byte", NeedAgent, wholeStream("text")},
	{"G9-flush", "G9", "a stream is passed on as it comes: the first event before the second is sent", NeedAgent, func(p *probe) {
		c := p.stream("handshake", p.turn()...)
		x := p.start(c)
		if came := x.until("part 1"); !came {
			p.agent.release(c.nonce)
			p.fault(x.wait(), x.wait().String(), "the first event while the agent waits with the second")
			return
		}
		p.agent.release(c.nonce)
		a := x.wait()
		if in, ok := p.arrived(c, a); ok {
			p.expect(a.body == in.told, a, "the bytes of the agent: "+clip(in.told, 200))
		}
	}},
	{"G11-key", "G11", "an Idempotency-Key is consumed, not sent on", NeedAgent, func(p *probe) {
		c := p.ask("text", "Idempotency-Key: "+fresh())
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.atAgent(a, in, "Idempotency-Key", "")
		}
	}},
	{"G11-encoding", "G11", "Accept-Encoding of the caller is not passed on", NeedAgent, func(p *probe) {
		c := p.stream("text", p.turn("Accept-Encoding: br, zstd;q=0.5")...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			got := in.header.Values("Accept-Encoding")
			p.expect(!strings.Contains(strings.Join(got, ","), "br"), a, "the agent does not get Accept-Encoding: "+p.shown(got))
		}
	}},
	{"G11-once", "G11", "no POST is sent a second time behind the caller's back", NeedAgent, func(p *probe) {
		p.served(p.send(p.ask("text"))) // there is a connection that could be taken again
		c := p.ask("drop", "Idempotency-Key: "+fresh())
		a := p.send(c)
		p.expect(a.status >= 500, a, "an error: the agent hung up")
		p.executed(c, a, 1)
	}},
	{"G12-request", "G12", "hop-by-hop headers of a request end at the endpoint", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("Connection: X-Conformance-Hop", "X-Conformance-Hop: 1", "Keep-Alive: timeout=5", "Proxy-Authorization: Basic x", "TE: gzip", "Proxy-Connection: close")...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			for _, name := range []string{"X-Conformance-Hop", "Keep-Alive", "Proxy-Authorization", "TE", "Proxy-Connection"} {
				p.atAgent(a, in, name, "")
			}
		}
	}},
	{"G12-answer", "G12", "hop-by-hop headers of an answer end at the endpoint", NeedAgent, func(p *probe) {
		c := p.ask("hop", p.turn()...)
		a := p.send(c)
		if _, ok := p.arrived(c, a); ok {
			for _, name := range []string{"X-Conformance-Agent-Hop", "Proxy-Authenticate", "Keep-Alive"} {
				p.noHeader(a, name)
			}
		}
	}},
	{"G12-via", "G12", "Via is added to what is passed on", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("Via: 1.0 conformance")...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			got := strings.Join(in.header.Values("Via"), ", ")
			p.expect(strings.HasPrefix(got, "1.0 conformance, ") && len(got) > len("1.0 conformance, "), a, "the agent gets Via: 1.0 conformance and another, not "+clip(got, 100))
		}
	}},
	{"G12-forwarded", "G12", "X-Forwarded-* of a caller is not believed", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("X-Forwarded-For: 203.0.113.9", "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: gopher")...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			got := fmt.Sprint(in.header["X-Forwarded-For"], in.header["X-Forwarded-Host"], in.header["X-Forwarded-Proto"])
			for _, lie := range []string{"203.0.113.9", "evil.example", "gopher"} {
				p.expect(!strings.Contains(got, lie), a, "the agent does not get "+lie)
			}
		}
	}},
	{"G12-upgrade", "G12", "an Upgrade is refused, or goes no further", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn("Connection: Upgrade", "Upgrade: websocket")...)
		a := p.send(c)
		if a.status == http.StatusBadRequest {
			p.stopped(c, a, true, "400")
			return
		}
		if in, ok := p.arrived(c, a); ok {
			p.atAgent(a, in, "Upgrade", "")
		}
	}},
	{"P23-refused", "P23", "a redirect of an agent is agent_redirected, and not passed to the caller", NeedAgent, func(p *probe) {
		for _, n := range []string{"301", "302", "303", "307", "308"} {
			a := p.send(p.ask("redirect:"+n, p.turn()...))
			p.expect(a.status == 502 && a.code() == "agent_redirected", a, "502 agent_redirected")
			p.noHeader(a, "Location")
		}
	}},
	{"P23-not-followed", "P23", "a redirect of an agent is not followed", NeedAgent, func(p *probe) {
		for _, n := range []string{"302", "307"} {
			c := p.ask("redirect:"+n, p.turn()...)
			p.executed(c, p.send(c), 1)
		}
	}},
	{"P23-not-retried", "P23", "clients are told not to retry a redirect", NeedAgent, func(p *probe) {
		a := p.send(p.ask("redirect:307", p.turn()...))
		p.expect(a.status >= 400, a, "an error")
		p.header(a, "x-should-retry", "false")
	}},
}

// wholeStream expects that a stream passes to the byte, and that the same turn
// again gets the same from memory.
func wholeStream(behaviour string) func(*probe) {
	return func(p *probe) {
		c := p.stream(behaviour, p.turn()...)
		a := p.send(c)
		in, ok := p.arrived(c, a)
		if !ok {
			return
		}
		p.expect(a.body == in.told, a, "the bytes of the agent: "+clip(in.told, 200))
		p.expect(strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream"), a, "Content-Type: text/event-stream")
	}
}
