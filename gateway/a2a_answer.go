package gateway

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// passA2A passes the answer of an A2A agent on: byte for byte, but for the few
// differences of its clients and servers (A14).
func (a *answer) passA2A(sse bool) {
	switch x := a.exchange; {
	case sse && a.resp.StatusCode == http.StatusOK:
		x.deadline.Stop() // a task may take as long as it takes (A11)
		a.passEvents()
	case x.flight != nil:
		a.passWhole(false)
	default:
		a.passRead()
	}
}

// passRead passes on what answers no call: it is read whole, since it may tell
// of tasks.
func (a *answer) passRead() {
	x, g, status := a.exchange, a.gateway, a.resp.StatusCode
	body, err := a.readWhole(func([]byte) error { return nil })
	kept := a.kept()
	switch {
	case errors.Is(err, errLarge):
		a.passUnread(body, kept)
		return
	case err == nil && status < http.StatusMultipleChoices:
		whole := body
		body, _, err = a.convertA2A(body, kept)
		if err == nil && x.envelope.call.Operation == a2a.OpCard {
			body, err = a.extendedCard(whole, kept)
		}
	}
	if err != nil {
		g.fail(a.w, a.r, x, err)
		return
	}
	a.learning.Wait()
	if len(body) > 0 {
		kept["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	a.head(status, kept)
	_ = g.send(a.w, body)
}

// passUnread passes on what answers no call and is larger than what is kept, when
// the part that is in memory names its task, and it is the caller's (A12).
func (a *answer) passUnread(begun []byte, kept http.Header) {
	x, tasks := a.exchange, a2a.NewTaskFinder(a.exchange.envelope.binding)
	err := a.tooLarge()
	if op := x.envelope.call.Operation; op.TellsTasks() && op != a2a.OpList {
		err = a.begins(tasks, begun)
	}
	if err != nil {
		a.gateway.fail(a.w, a.r, x, err)
		return
	}
	a.head(a.resp.StatusCode, kept)
	_ = a.write(begun)
	err = a.read(func(b []byte) error {
		if err := a.owns(&a2a.Frame{Tasks: tasks.Feed(b)}); err != nil {
			return err
		}
		return a.write(b)
	})
	if err != nil {
		x.cut(err)
	}
}

// begins looks at the beginning of an answer that is too large to be read whole: it
// names its task, or says that it is a message, and nothing in it is another's.
func (a *answer) begins(tasks *a2a.TaskFinder, begun []byte) error {
	if err := a.owns(&a2a.Frame{Tasks: tasks.Feed(begun)}); err != nil {
		return err
	}
	if !tasks.Named() {
		return a.tooLarge()
	}
	return nil
}

func (a *answer) tooLarge() error {
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the agent's answer is too large to see whose tasks it tells of",
		Explain: &agentbus.Explain{Rule: "A12", Limit: a.gateway.cfg.MaxReply, Next: "ask for less, such as one task or a page of them"},
	}
}

// extendedCard returns the answer with the card as it is behind this bus (A10).
func (a *answer) extendedCard(body []byte, kept http.Header) ([]byte, error) {
	x := a.exchange
	edited, err := a2a.RewriteExtended(body, x.envelope.binding, a.gateway.cardEdit(a.r, x))
	if err != nil {
		return nil, a.noCard(err)
	}
	kept["Etag"], kept["Cache-Control"] = []string{a2a.ETag(edited)}, []string{"private, max-age=300"}
	return edited, nil
}

func (a *answer) noCard(err error) error {
	return a2a.Standard(a2a.CodeInvalidAgentResponse, "", &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the agent's extended card cannot be read", Err: err, Explain: &agentbus.Explain{Rule: "A10"},
	})
}

// convertA2A looks at a whole answer under 200, and makes an event of one to a
// caller that reads events: it would see an empty stream, and no error (A14). A
// REST caller reads its errors from the status, and some read a whole answer; but
// what may come again is kept in the form that everybody reads.
func (a *answer) convertA2A(body []byte, kept http.Header) (sent, stored []byte, err error) {
	x := a.exchange
	e := x.envelope
	told, valid := a2a.ReadFrame(body, e.binding)
	if !valid || body[rawjson.Space(body, 0)] != '{' {
		if x.flight == nil && (len(body) == 0 || !e.call.Operation.TellsTasks()) {
			return body, body, nil
		}
		return nil, nil, a.noObject(kept)
	}
	if e.call.Operation == a2a.OpList && told.Err == nil {
		if body, err = a.ownList(body, kept); err != nil {
			return nil, nil, err
		}
		told, _ = a2a.ReadFrame(body, e.binding)
	}
	e.told, e.read = told, true
	learn := a.owns
	if a.settlesTasks(&e.told) {
		learn = a.claims
	}
	if err := learn(&e.told); err != nil {
		return nil, nil, err
	}
	if !e.call.Operation.Streams() || x.toldError() && (e.binding == a2a.REST || e.whole && !x.want.again) {
		return body, body, nil
	}
	kept["Content-Type"] = []string{"text/event-stream"}
	x.note("converted:whole")
	return a2a.Event(body), body, nil
}

// toldError reports whether the answer is an error of A2A under 200: it is not
// charged.
func (x *exchange) toldError() bool { return x.envelope != nil && x.envelope.told.Err != nil }

// laterFault says why an error that an agent told does not settle its call, or
// nil: the agent failed, and may not fail the next time.
func laterFault(e *a2a.Error) error {
	if e == nil || finalFault(e) {
		return nil
	}
	b := *e.Bus()
	b.Message, b.Status = "the agent answered with an error: "+b.Message, http.StatusOK
	return &b
}

func finalFault(e *a2a.Error) bool {
	if e.Status != 0 { // it came by REST
		return isFinal(e.Status)
	}
	if e.Domain == a2a.DomainBus {
		code := e.Bus().Code
		return !code.Retryable() && code != agentbus.CodeInternal
	}
	switch e.Code {
	case a2a.CodeInternal, a2a.CodeInvalidAgentResponse:
		return false
	}
	return e.Code == a2a.CodeParse || e.Code <= a2a.CodeTaskNotFound && e.Code >= a2a.CodeVersionNotSupported || e.Code <= a2a.CodeInvalidRequest && e.Code >= a2a.CodeInvalidParams
}

// usageIn is what a frame tells of its usage.
func usageIn(f *a2a.Frame) (u reported) {
	for _, m := range f.Metadata {
		if u = parseUsage(m); u.told() {
			break
		}
	}
	return u
}

// usageOfFrame returns what an answer says was used, or an estimate of what was sent
// and said: the same for an answer that comes whole and one that is streamed. An error
// that says nothing used nothing.
func (x *exchange) usageOfFrame(told reported, failed bool, heard func() a2a.Said) agentbus.Usage {
	return x.used(told, func() agentbus.Usage {
		if failed {
			return agentbus.Usage{}
		}
		said, sent := heard(), x.envelope.call.SentBytes(x.body)
		return agentbus.Usage{InputTokens: int64(sent / bytesPerToken), OutputTokens: int64(said.Len() / bytesPerToken), Estimated: true}
	})
}
