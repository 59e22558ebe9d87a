package conformance

import (
	"fmt"
	"strconv"
	"strings"
)

// socketChecks are about requests that two servers could read as two different
// ones.
var socketChecks = []Check{
	{"G36-length-and-coding", "G36", "a Content-Length beside a Transfer-Encoding is refused", 0, framed(func(body string) ([]string, string) {
		return []string{"Content-Length: " + strconv.Itoa(len(chunked(body))), "Transfer-Encoding: chunked"}, chunked(body)
	})},
	{"G36-coding-and-length", "G36", "in the other order too", 0, framed(func(body string) ([]string, string) {
		return []string{"Transfer-Encoding: chunked", "Content-Length: 4"}, chunked(body)
	})},
	{"G36-two-lengths", "G36", "two Content-Lengths that differ are refused", 0, framed(func(body string) ([]string, string) {
		return []string{"Content-Length: " + strconv.Itoa(len(body)), "Content-Length: 1"}, body
	})},
	{"G36-same-lengths", "G36", "two Content-Lengths that agree are refused", 0, framed(func(body string) ([]string, string) {
		n := "Content-Length: " + strconv.Itoa(len(body))
		return []string{n, n}, body
	})},
	{"G36-length-list", "G36", "a list of Content-Lengths is refused", 0, framed(func(body string) ([]string, string) {
		n := strconv.Itoa(len(body))
		return []string{"Content-Length: " + n + ", " + n}, body
	})},
	{"G36-two-codings", "G36", "Transfer-Encoding: chunked twice is refused", 0, framed(func(body string) ([]string, string) {
		return []string{"Transfer-Encoding: chunked", "Transfer-Encoding: chunked"}, chunked(body)
	})},
	{"G36-unknown-coding", "G36", "a Transfer-Encoding other than chunked is refused", 0, framed(func(body string) ([]string, string) {
		return []string{"Transfer-Encoding: xchunked"}, chunked(body)
	})},
	{"G36-fold", "G36", "a folded header line is refused", 0, headed("X-Folded: a\r\n b")},
	{"G36-fold-depth", "G36", "a folded depth is refused, not read as its first line", 0, headed("x-tangle-forwarded-depth: 0\r\n\t9")},
	{"G36-bare-lf", "G36", "a line of the head that ends in LF alone is refused", 0, headed("X-A: 1\nX-B: 2")},
	{"G36-bare-cr", "G36", "a CR alone in a head is refused", 0, headed("X-A: 1\rX-B: 2")},
	{"G36-space", "G36", "a space between a header's name and its colon is refused", 0, headed("x-tangle-forwarded-depth : 0")},
}

func chunked(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

// framed sends a call whose body is framed as frame says, and expects that it
// ends at the endpoint.
func framed(frame func(body string) ([]string, string)) func(*probe) {
	return func(p *probe) {
		c := p.ask("text", p.turn()...)
		c.framing, c.body = frame(c.body)
		p.malformed(c, p.send(c))
	}
}

func headed(lines string) func(*probe) {
	return func(p *probe) {
		c := p.ask("text", p.turn()...).with(lines)
		p.malformed(c, p.send(c))
	}
}

// malformed expects a refusal of an HTTP message that is none: by the endpoint,
// or by the HTTP library in front of it, which knows no codes and may call a
// coding unimplemented.
func (p *probe) malformed(c *call, a *answer) {
	coding := len(c.framing) > 0 && !strings.HasPrefix(strings.Join(c.framing, ""), "Content-Length")
	p.stopped(c, a, a.status == 400 || a.status == 501 && coding, "400")
}

// lastChecks look back on all the answers of the session.
var lastChecks = []Check{
	{"P19-silent", "P19", "no answer to any check told a credential", 0, func(p *probe) {
		p.send(p.ask("text", p.turn("x-tangle-forwarded-depth: x")...))
		p.send(p.ask("text").as(p.madeUp()))
		p.send(p.ask("text").forwarding(p.madeUp()))
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, sent := range p.leaks {
			p.fault(&answer{sent: sent}, "an answer that holds a credential", "none of its bytes")
		}
	}},
}
