package storetest

import (
	"net/http"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

var recordings = map[string]func(*place){
	"WhatACallWasAskedIsKeptWithIt":    whatACallWasAskedIsKeptWithIt,
	"WhatACallWasAnsweredIsKeptAsWell": whatACallWasAnsweredIsKeptAsWell,
	"TheLastAttemptIsRecorded":         theLastAttemptIsRecorded,
	"OldRecordingsAreForgotten":        oldRecordingsAreForgotten,
}

// recorded returns a reservation that records what it asks.
func recorded(n int, body string) agentbus.Reservation {
	r := reservation("run_a", n)
	r.Recording = &agentbus.Recording{
		RecordedBody: agentbus.RecordedBody{Body: body, Size: int64(len(body)) + 7, Cut: n%2 == 1},
		In:           http.Header{"X-Tangle-Speaker": {"Zo\u00eb \\ 🦊"}, "x_tangle_runid": {"run_b", "run_c"}},
	}
	return r
}

// recording returns what is recorded of a call, which must be something.
func (p *place) recording(call int64) agentbus.Recording {
	p.t.Helper()
	rec, found, err := p.Recording(p.t.Context(), call)
	ok(p.t, "recording", err)
	if !found {
		p.t.Fatalf("nothing is recorded of call %d", call)
	}
	return rec
}

func whatACallWasAskedIsKeptWithIt(p *place) { // U11
	t := p.t
	var ids []int64
	var want []agentbus.Recording
	for n, body := range []string{difficult, "", strings.Repeat("long and even \x00 longer ", 40_000)} {
		r := recorded(n, body)
		ids = append(ids, reserve(t, p, r).ID)
		rec := *r.Recording
		rec.Attempt, rec.At = 1, began
		want = append(want, rec)
	}
	plain := reserve(t, p, reservation("run_a", 9))
	for i, id := range ids {
		same(t, "while it executes", p.recording(id), want[i])
		want[i].Out = http.Header{"X-Tangle-Forwarded-Depth": {"3"}}
		s := agentbus.Settlement{ID: id, Attempt: 1, Sent: want[i].Out, Ended: began}
		ok(t, "settle", p.Settle(t.Context(), s))
	}
	ok(t, "settle what is not recorded", p.Settle(t.Context(), settlement(plain, "x")))
	p.reopen()
	for i, id := range ids {
		same(t, "once it has ended", p.recording(id), want[i])
	}
	if rec, found, err := p.Recording(t.Context(), plain.ID); found || err != nil {
		t.Errorf("of a call that was not recorded: %+v, %v", rec, err)
	}
}

func whatACallWasAnsweredIsKeptAsWell(p *place) { // U11
	t := p.t
	want := map[int64]*agentbus.RecordedBody{}
	for n, answer := range []*agentbus.RecordedBody{
		nil, {}, {Size: 9}, {Body: difficult, Size: 99, Cut: true}, {Body: strings.Repeat("long and even \x00 longer ", 40_000), Size: 1 << 40},
	} {
		settled, voided := reserve(t, p, recorded(2*n, "x")), reserve(t, p, recorded(2*n+1, "x"))
		s := settlement(settled, "x")
		s.Answer, want[settled.ID] = answer, answer
		ok(t, "settle", p.Settle(t.Context(), s))
		ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: voided.ID, Attempt: 1, Answer: answer, Ended: began}))
		want[voided.ID] = answer
	}
	p.reopen()
	for id, answer := range want {
		same(t, "answer", p.recording(id).Answer, answer)
	}
	plain := settlement(reserve(t, p, reservation("run_a", 20)), "x")
	plain.Answer = &agentbus.RecordedBody{Body: "x"}
	ok(t, "settle what is not recorded", p.Settle(t.Context(), plain))
	if rec, found, err := p.Recording(t.Context(), plain.ID); found || err != nil {
		t.Errorf("of a call that was not recorded: %+v, %v", rec, err)
	}
}

func theLastAttemptIsRecorded(p *place) { // U11
	t := p.t
	first := reserve(t, p, recorded(0, "first"))
	sent := http.Header{"X-Tangle-Turnid": {"run_a.t0.critic"}}
	answer := &agentbus.RecordedBody{Body: "no", Size: 2}
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: first.ID, Attempt: 1, Sent: sent, Answer: answer, Ended: began}))
	same(t, "sent by a failed attempt", p.recording(first.ID).Out, sent)
	same(t, "answered to a failed attempt", p.recording(first.ID).Answer, answer)
	again := recorded(0, "second")
	again.Call.Began = began.Add(time.Minute)
	second := reserve(t, p, again)
	rec := p.recording(first.ID)
	if rec.Body != "second" || rec.Attempt != 2 || rec.Out != nil || rec.Answer != nil || !rec.At.Equal(second.Began) {
		t.Errorf("of the second attempt: %+v", rec)
	}
	refused(t, "end the first again", p.Void(t.Context(), agentbus.Voiding{ID: first.ID, Attempt: 1, Sent: sent, Answer: answer}), agentbus.CodeLeaseLost)
	expectOutcome(t, p, recorded(0, "a duplicate"), agentbus.OutcomeInFlight)
	same(t, "after a duplicate and a fenced attempt", p.recording(first.ID), rec)
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: first.ID, Attempt: 2, Ended: began}))
	reserve(t, p, reservation("run_a", 0)) // recorded no more
	same(t, "after an attempt that is not recorded", p.recording(first.ID), rec)
}

func oldRecordingsAreForgotten(p *place) { // U11, G25
	t := p.t
	const calls = 7
	var ids []int64
	for n := range calls {
		r := recorded(n, "x")
		if n == 3 {
			r.Call.Began = began.Add(time.Hour)
		}
		ids = append(ids, reserve(t, p, r).ID)
	}
	forget := func(before time.Time) (n int) {
		for {
			some, err := p.ForgetRecordings(t.Context(), before, 2)
			ok(t, "forget", err)
			if n += some; some == 0 {
				return n
			}
		}
	}
	same(t, "too early", forget(began), 0)
	same(t, "forgotten", forget(began.Add(time.Minute)), calls-1)
	for n, id := range ids {
		if _, found, err := p.Recording(t.Context(), id); found != (n == 3) || err != nil {
			t.Errorf("of call %d: %t, %v", n, found, err)
		}
	}
	s := settlement(agentbus.CallRecord{ID: ids[0], Attempts: 1}, "x")
	s.Sent = http.Header{}
	ok(t, "settle what is recorded no more", p.Settle(t.Context(), s))
}
