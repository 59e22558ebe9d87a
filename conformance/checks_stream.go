package conformance

import (
	"strings"

	"github.com/tidwall/gjson"
)

// streamChecks are about streams in all their forms, and answers in the form
// that was not asked for.
var streamChecks = []Check{
	{"G10-crlf", "G10", "a stream with CRLF line ends is whole", NeedAgent, settles("crlf")},
	{"G10-bom", "G10", "a stream behind a byte order mark is whole", NeedAgent, settles("bom")},
	{"G10-comments", "G10", "a stream with comments, ids and data over several lines is whole", NeedAgent, settles("comments")},
	{"G10-unfinished", "G10", "a stream without its last blank line is whole", NeedAgent, settles("unfinished")},
	{"G15-cut", "G15", "a stream without its end is not told as whole", NeedAgent, looksCut("cut")},
	{"G15-broken", "G15", "a stream whose connection breaks is not told as whole", NeedAgent, looksCut("broken")},
	{"G15-cut-again", "G15", "a turn whose stream was cut is executed again, and the whole stream kept", NeedAgent, func(p *probe) {
		for _, behaviour := range []string{"cut", "broken"} {
			c := p.stream(behaviour, p.turn()...)
			p.send(c)
			a := p.send(c)
			p.served(a)
			p.expect(strings.Contains(a.body, "data: [DONE]"), a, "a whole stream")
			p.replayed(c, a, 2)
		}
	}},
	{"G15-error", "G15", "an error in a stream under 200 is a failed attempt, and not kept", NeedAgent, func(p *probe) {
		c := p.stream("failing", p.turn()...)
		first := p.send(c)
		p.expect(!strings.Contains(first.body, "data: [DONE]"), first, "a stream without [DONE]")
		p.replayed(c, p.send(c), 2)
	}},
	{"G15-to-json", "G15", "a stream that was not asked for becomes one JSON answer", NeedAgent, func(p *probe) {
		c := p.ask("sse", p.turn()...)
		a := p.send(c)
		if _, ok := p.arrived(c, a); ok {
			p.expect(strings.HasPrefix(a.header.Get("Content-Type"), "application/json"), a, "Content-Type: application/json")
			p.expect(strings.HasPrefix(gjson.Get(a.body, "choices.0.message.content").Str, "part 1, part 2 of "), a, "a chat completion with the whole text")
		}
	}},
	{"G15-to-stream", "G15", "a JSON answer where a stream was asked for becomes a stream", NeedAgent, func(p *probe) {
		c := p.stream("json", p.turn()...)
		a := p.send(c)
		if _, ok := p.arrived(c, a); ok {
			p.expect(strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream"), a, "Content-Type: text/event-stream")
			p.expect(strings.Contains(a.body, "part 1, part 2 of ") && strings.Contains(a.body, "data: [DONE]"), a, "events with the text, and [DONE]")
		}
	}},
}

// settles expects that a stream passes to the byte and is taken for a whole one:
// the same turn again is answered from memory.
func settles(behaviour string) func(*probe) {
	return func(p *probe) {
		c := p.stream(behaviour, p.turn()...)
		first := p.send(c)
		in, ok := p.arrived(c, first)
		if !ok {
			return
		}
		p.expect(first.body == in.told, first, "the bytes of the agent: "+clip(in.told, 200))
		p.replayed(c, first, 1)
	}
}

// looksCut expects that who reads a stream that was cut can tell.
func looksCut(behaviour string) func(*probe) {
	return func(p *probe) {
		a := p.send(p.stream(behaviour, p.turn()...))
		p.expect(!strings.Contains(a.body, "data: [DONE]"), a, "a stream without [DONE]")
		p.expect(a.err != nil || a.status >= 500 || strings.Contains(a.body, `"error"`), a, "a connection that breaks off, or an error event")
	}
}
