package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
)

// Recording says what is kept of what calls are asked and answered, for people to
// read (U11).
type Recording struct {
	// MaxBody is how many bytes of a body are kept; 0: nothing is recorded, and
	// nothing is done for it.
	MaxBody int
	// Redactor returns what takes secrets out of a body: those that it knows, and
	// credentials that came with the call. Required with MaxBody.
	Redactor func(credentials ...agentbus.Credential) Redactor
}

// A Redactor takes secrets out of what is to be stored (E28). It is safe for
// concurrent use.
type Redactor interface {
	Text(s string) string
	JSON(raw json.RawMessage) json.RawMessage
}

// A recorder is what the gateway needs to record a call; nil where none is.
type recorder struct {
	redactor Redactor
	most     int         // bytes of a body that are kept
	sent     http.Header // to the agent; of several tries, to the last one
	answer   passed      // to the caller
}

// recording returns what is kept of a call that comes as r; nil: nothing is.
func (g *Gateway) recording(x *exchange, r *http.Request) *agentbus.Recording {
	if g.cfg.Recording.MaxBody <= 0 {
		return nil
	}
	x.recorder = &recorder{redactor: g.cfg.Recording.Redactor(x.auth, x.lineage.Auth, x.target.Authorization), most: g.cfg.Recording.MaxBody}
	rec := &agentbus.Recording{RecordedBody: agentbus.RecordedBody{Size: int64(len(x.body))}, In: x.recorder.headers(r.Header)}
	if !encoded(r.Header) && utf8.Valid(x.body) { // what cannot be read cannot be rid of secrets
		x.recorder.keep(&rec.RecordedBody, x.recorder.text(x.redact(string(x.body))))
	}
	return rec
}

// encoded reports whether a body has a content coding.
func encoded(h http.Header) bool {
	coding := h.Get("Content-Encoding")
	return coding != "" && !strings.EqualFold(coding, "identity")
}

// keep keeps as much of text as may be.
func (rec *recorder) keep(b *agentbus.RecordedBody, text string) {
	if b.Body = text; len(text) > rec.most { // a secret is not cut: it is gone by now
		b.Body, b.Cut = strings.ToValidUTF8(text[:rec.most], ""), true
	}
}

// text takes secrets out of a body, which otherwise stays as it is; those too that
// JSON writes with escapes.
func (rec *recorder) text(body string) string {
	body = rec.redactor.Text(body)
	if strings.Contains(body, `\`) && json.Valid([]byte(body)) {
		body = string(rec.redactor.JSON(json.RawMessage(body)))
	}
	return body
}

// headers returns the headers of the protocol in h, as they may be kept.
func (rec *recorder) headers(h http.Header) http.Header {
	kept := http.Header{}
	for name, values := range h {
		if !agentbus.IsProtocolHeader(name) {
			continue
		}
		for _, v := range values {
			if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), agentbus.HeaderForwardedAuthorization) {
				v = "[redacted]"
			}
			kept[name] = append(kept[name], rec.redactor.Text(v))
		}
	}
	return kept
}

// sends notes what an agent is about to be sent.
func (rec *recorder) sends(h http.Header) {
	if rec != nil {
		rec.sent = rec.headers(h)
	}
}

// wasSent returns what the agent was sent; nil: that is not recorded.
func (rec *recorder) wasSent() http.Header {
	if rec == nil {
		return nil
	}
	return rec.sent
}
