package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/faults"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// passWhole passes on an answer that is no stream: it is read, settled, and
// only then sent (G21).
func (a *answer) passWhole(sse bool) {
	x, g := a.exchange, a.gateway
	t := tap{dialect: x.dialect}
	body, err := a.readWhole(func(b []byte) error {
		if sse && x.dialect != dialectOther {
			t.feed(b)
		}
		if t.ended {
			return errEnded
		}
		return nil
	})
	if errors.Is(err, errEnded) { // whatever becomes of the connection behind that
		a.drain(nil, t.cr)
		err = nil
	}
	if errors.Is(err, errLarge) {
		a.passLarge(body, sse)
		return
	}
	kept, status, told := a.kept(), a.resp.StatusCode, body
	if err == nil {
		x.recorder.answers(kept, int64(len(body)), body, nil) // as it came, should it be no answer
	}
	if err == nil && status < http.StatusMultipleChoices {
		body, told, err = a.convert(body, sse, kept)
	}
	if err != nil {
		g.fail(a.w, a.r, x, err)
		return
	}
	why := a.notFinal(status, told)
	if why != nil || status >= http.StatusBadRequest { // an error may say back what the agent was sent (P19)
		body = []byte(x.redact(string(body)))
	}
	x.recorder.answers(kept, int64(len(body)), body, nil)
	if why != nil && a.ctx.Err() != nil && !errors.Is(context.Cause(a.ctx), errEnded) { // an agent in this process says something when it is cut
		g.fail(a.w, a.r, x, transportError(a.ctx, why))
		return
	}
	if status >= http.StatusBadRequest && g.stopped.has(x.lineage.Run) { // it says so when those that it called are cut first
		g.fail(a.w, a.r, x, errRunStopped)
		return
	}
	if why != nil {
		u := parseUsage(told).Usage
		g.void(a.r.Context(), x, why, u, x.target.cost(u))
	} else if err := a.settle(agentbus.StoredReply{Status: status, Header: kept, Body: body}, a.usage(status, told), false); err != nil {
		g.fail(a.w, a.r, x, err)
		return
	}
	a.learning.Wait()
	x.flight.whole(status, kept, body, g.cfg.MaxReply)
	own := a.w.Header() // duplicates are reading kept by now
	own["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.tellCost(own, "")
	x.leavePlace() // the agent is done, however slowly its answer is read
	a.head(status, kept)
	faults.At(faults.AckAmid)
	_ = g.send(a.w, body) // a caller that left may ask again
	faults.At(faults.AckAfter)
}

// errLarge stops reading an answer into memory.
var errLarge = errors.New("the answer is larger than what is kept")

// readWhole reads the answer into memory, to its end or to the first error of look,
// which is shown each piece. With errLarge it returns what it has read of one that is
// larger than what is kept.
func (a *answer) readWhole(look func([]byte) error) ([]byte, error) {
	most := a.gateway.cfg.MaxReply
	room := int64(512)
	if told := a.resp.ContentLength; told >= 0 {
		room = min(told, most)
	}
	body := make([]byte, 0, room)
	err := a.read(func(b []byte) error {
		if body = append(body, b...); int64(len(body)) > most {
			return errLarge
		}
		return look(b)
	})
	return body, err
}

// passLarge passes an answer on as it comes, but for its last bytes, which wait
// for the settlement. It is not kept, and looked into for its usage (G26) and its
// task (A12) only: what cannot be the answer that was asked for is refused.
func (a *answer) passLarge(begun []byte, sse bool) {
	x, g, kept, status := a.exchange, a.gateway, a.kept(), a.resp.StatusCode
	look, err := a.lookInto(begun, sse, kept)
	if err != nil {
		g.fail(a.w, a.r, x, err)
		return
	}
	x.flight.change(func() { x.flight.over = true })
	a.head(status, kept)
	_ = a.write(begun[:g.cfg.MaxReply]) // never fails for a call
	held, total := slices.Clone(begun[g.cfg.MaxReply:]), int64(len(begun))
	var told usageFinder
	told.feed(begun)
	err = a.read(func(b []byte) error {
		if err := look(b); err != nil {
			return err
		}
		_ = a.write(held)
		held = append(held[:0], b...)
		told.feed(b)
		total += int64(len(b))
		return nil
	})
	x.recorder.answers(kept, total, nil, nil) // nobody holds it
	switch {
	case err != nil:
	case x.settles(status):
		u := x.used(told.usage(), func() (u agentbus.Usage) {
			if status < http.StatusBadRequest {
				u = estimate(x, total/bytesPerToken)
			}
			return u
		})
		err = a.settle(agentbus.StoredReply{Status: status, Header: kept}, u, true)
	default:
		g.void(a.r.Context(), x, a.notFinal(status, nil), agentbus.Usage{}, 0)
	}
	if err != nil { // the head is out: nobody may take the part for the whole
		x.failed = err
		g.void(a.r.Context(), x, err, agentbus.Usage{}, 0)
		x.cut(err)
	}
	_ = a.write(held)
}

// lookInto looks at the beginning of an answer that is too large to be read whole,
// and returns what looks at the rest.
func (a *answer) lookInto(begun []byte, sse bool, kept http.Header) (look func([]byte) error, err error) {
	x, look := a.exchange, func([]byte) error { return nil }
	if x.envelope == nil && x.dialect == dialectOther || a.resp.StatusCode >= http.StatusMultipleChoices {
		return look, nil
	}
	streams := x.peek.stream || x.envelope != nil && x.envelope.call.Operation.Streams()
	if at := rawjson.Space(begun, 0); sse || streams || at == len(begun) || begun[at] != '{' {
		return nil, a.noObject(kept)
	}
	if x.envelope == nil {
		return look, nil
	}
	tasks := a2a.NewTaskFinder(x.envelope.binding)
	return func(b []byte) error { return a.owns(&a2a.Frame{Tasks: tasks.Feed(b)}) }, a.begins(tasks, begun)
}

// notFinal says why an answer does not settle its call, or nil.
func (a *answer) notFinal(status int, body []byte) error {
	switch {
	case !a.exchange.settles(status), asks(status, body):
		return laterError(status, body)
	case a.exchange.envelope != nil:
		return laterFault(a.exchange.envelope.told.Err)
	case status < http.StatusMultipleChoices && a.exchange.dialect != dialectOther && (isErrorBody(body) || gjson.GetBytes(body, "status").Str == "failed"):
		return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: status, Message: "the agent answered with an error under status 200"}
	case a.exchange.needsWords() && status < http.StatusMultipleChoices && !speaks(body):
		return errSilent
	}
	return nil
}

// errSilent is why an answer without a word does not settle the call of a driver: to
// it that is no answer (R16). It is passed on as it came.
var errSilent = &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: http.StatusOK, Message: "the agent completed without text"}

// asks reports whether an answer says that the agent waits to be told something
// (A38): the same turn is asked again once somebody has, and executes then.
func asks(status int, body []byte) bool {
	if status != http.StatusPaymentRequired && status != http.StatusUnprocessableEntity {
		return false
	}
	code := agentbus.Code(gjson.GetBytes(body, "error.code").Str)
	return code == agentbus.CodePaymentRequired || code == agentbus.CodeInputRequired
}

// laterError tells an answer that says "later" for the record: with the code and
// the words of a bus further down, where there is one.
func laterError(status int, body []byte) error {
	e := &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Status: status,
		Message: "the agent answered " + strconv.Itoa(status) + ", which is no final answer",
	}
	told := gjson.GetManyBytes(body, "error.code", "error.message")
	if code := agentbus.Code(told[0].Str); code.Known() {
		e.Code, e.Message = code, "below this agent: "+plain(told[1].String(), 300)
	}
	return e
}
