package conformance

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
)

var money = regexp.MustCompile(`^\d+(\.\d+)?$`)

func (p *probe) get(path string) *call {
	return &call{method: "GET", path: path, key: p.cfg.Key}
}

// credentialChecks are about who calls and who pays.
var credentialChecks = []Check{
	{"G4-none", "G4", "a call without a key is 401, with a challenge", 0, func(p *probe) { p.unauthenticated(p.ask("text").as(agentbus.Credential{})) }},
	{"G4-unknown", "G4", "a call with an unknown key is 401, with a challenge", 0, func(p *probe) { p.unauthenticated(p.ask("text").as(p.madeUp())) }},
	{"G4-scheme", "G4", "a key under another scheme is 401", 0, func(p *probe) {
		p.unauthenticated(p.ask("text", "Authorization: Basic Y29uZm9ybWFuY2U6eA==").as(agentbus.Credential{}))
	}},
	{"G4-models", "G4", "the list of agents is not for everybody", 0, func(p *probe) {
		a := p.send(p.get("/v1/models").as(agentbus.Credential{}))
		p.expect(a.status == 401, a, "401")
	}},
	{"G4-forwarded", "G4", "a forwarded credential does not stand for a key", 0, func(p *probe) {
		p.unauthenticated(p.ask("text").as(agentbus.Credential{}).forwarding(p.cfg.Key))
	}},
	{"P20-ignored", "P20", "a credential forwarded by who may not is refused, or ignored: the caller's own travels on", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...).forwarding(p.madeUp())
		a := p.send(c)
		if a.status == 403 {
			p.refused(c, a, 403, "untrusted_forwarder")
			return
		}
		if in, ok := p.arrived(c, a); ok {
			p.carries(a, in, p.cfg.Key)
		}
	}},
	{"P20-honoured", "P20", "a credential forwarded by an inter-agent caller is passed on verbatim", NeedAgent | NeedRelay, func(p *probe) {
		c := p.ask("text", p.turn()...).as(p.cfg.RelayKey).forwarding(p.cfg.Key)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.carries(a, in, p.cfg.Key)
		}
	}},
	{"P20-payer", "P20", "who is forwarded pays: it finds its own turn again behind an inter-agent caller", NeedAgent | NeedRelay, func(p *probe) {
		c := p.ask("text", p.turn()...)
		first, again := p.send(c), p.send(c.as(p.cfg.RelayKey).forwarding(p.cfg.Key))
		p.served(first)
		p.same(first, again)
		p.executed(c, again, 1)
		own := p.send(c.as(p.cfg.RelayKey))
		p.served(own)
		p.executed(c, own, 2)
	}},
	{"P20-unknown", "P20", "a forwarded credential that does not verify is 401, and never the caller's bill", NeedAgent | NeedRelay, func(p *probe) {
		c := p.ask("text", p.turn()...).as(p.cfg.RelayKey).forwarding(p.madeUp())
		p.refused(c, p.send(c), 401, "unauthenticated")
	}},
	{"P21-origin", "P21", "the origin's Authorization is forwarded as its credential, once", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			p.carries(a, in, p.cfg.Key)
		}
	}},
	{"P22-authorization", "P22", "the agent does not get the caller's Authorization", NeedAgent, func(p *probe) {
		c := p.ask("text", p.turn()...)
		a := p.send(c)
		if in, ok := p.arrived(c, a); ok {
			got := strings.Join(in.header.Values("Authorization"), "")
			if p.cfg.Key.Redact(got) != got {
				p.fault(a, "the agent got the caller's Authorization", "the agent's own credential, or none")
			}
		}
	}},
}

// unauthenticated expects a refusal of somebody whom nobody knows.
func (p *probe) unauthenticated(c *call) {
	a := p.send(c)
	p.refused(c, a, 401, "unauthenticated")
	p.expect(a.header.Get("WWW-Authenticate") != "", a, "a WWW-Authenticate header")
}

// carries expects that our agent got one forwarded credential, and this one.
func (p *probe) carries(a *answer, in *arrival, want agentbus.Credential) {
	got := in.header.Values(agentbus.HeaderForwardedAuthorization)
	if len(got) != 1 || agentbus.NewCredential(got[0]).Fingerprint(nil) != want.Fingerprint(nil) {
		p.fault(a, fmt.Sprintf("the agent got %d forwarded credentials, and not the one", len(got)), "one "+agentbus.HeaderForwardedAuthorization+", the payer's, verbatim")
	}
}

// surfaceChecks are about routes, and requests that are none.
var surfaceChecks = []Check{
	{"G1-unknown", "G1", "an unknown agent is 404, and the ones there are are listed", 0, func(p *probe) {
		c := p.unknownAgent()
		a := p.send(c)
		if p.refused(c, a, 404, "agent_not_found") {
			p.expect(len(a.problem().Get("explain.supported").Array()) > 0, a, "the agents that may be called, in explain.supported")
		}
	}},
	{"G1-models", "G1", "GET /v1/models lists agents in OpenAI's form", 0, func(p *probe) {
		a := p.send(p.get("/v1/models"))
		p.expect(a.status == 200 && gjson.Get(a.body, "object").Str == "list" && gjson.Get(a.body, "data.0.id").Str != "", a, "a list of models")
	}},
	{"G1-model", "G1", "GET /v1/models/{id} tells of one agent", 0, func(p *probe) {
		id := gjson.Get(p.send(p.get("/v1/models")).body, "data.0.id").Str
		a := p.send(p.get("/v1/models/" + id))
		p.expect(a.status == 200 && gjson.Get(a.body, "id").Str == id && gjson.Get(a.body, "object").Str == "model", a, "the model of the list")
	}},
	{"G1-no-model", "G1", "GET /v1/models/{id} of an unknown agent is 404", 0, func(p *probe) {
		a := p.send(p.get("/v1/models/nobody-" + fresh()))
		p.expect(a.status == 404 && a.code() == "agent_not_found", a, "404 agent_not_found")
	}},
	{"G3-declared", "G3", "a body that is declared too large is 413, before it is sent", 0, func(p *probe) {
		c := p.ask("text")
		c.body, c.framing = "", []string{"Content-Length: 2147483649"}
		p.refused(c, p.send(c), 413, "request_too_large")
	}},
	{"G3-chunked", "G3", "a chunked body is counted as it is read, and 413 over the limit", 0, func(p *probe) {
		c := p.ask("text")
		piece := "10000\r\n" + strings.Repeat(" ", 64<<10) + "\r\n"
		c.framing = []string{"Transfer-Encoding: chunked"}
		c.body = strings.Repeat(piece, int(p.cfg.MaxBody>>16)+1) + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(c.body), c.body)
		p.refused(c, p.send(c), 413, "request_too_large")
	}},
	{"G9-json", "G9", "a body that is no JSON object is 400", 0, badBody(`{"model":`, `[1]`, `"text"`, ``, `{"model":"x"} {}`)},
	{"G9-model", "G9", "a body that names no model is 400", 0, badBody(`{"messages":[]}`, `{"model":7,"messages":[]}`)},
}

func badBody(bodies ...string) func(*probe) {
	return func(p *probe) {
		for _, body := range bodies {
			c := p.ask("text", p.turn()...)
			c.body = body
			p.refused(c, p.send(c), 400, "invalid_request")
		}
	}
}
