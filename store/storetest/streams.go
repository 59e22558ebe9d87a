package storetest

import (
	"bytes"
	"strconv"

	"github.com/agentbus/agentbus"
)

var streams = map[string]func(*place){
	"AStreamIsReplayedToTheByte":         aStreamIsReplayedToTheByte,
	"WhatAFailedAttemptStreamedIsGone":   whatAFailedAttemptStreamedIsGone,
	"AWholeReplyReplacesItsAppendedPart": aWholeReplyReplacesItsAppendedPart,
}

func aStreamIsReplayedToTheByte(p *place) { // G21, G23, I7
	t := p.t
	var want [3][]byte
	var calls [3]agentbus.CallRecord
	for n := range calls {
		calls[n] = reserve(t, p, reservation("run_a", n))
	}
	for i := range 40 { // the streams of three calls, interleaved
		for n := range calls {
			part := []byte("data: " + strconv.Itoa(i*n) + difficult + "\r\n\r\n")
			ok(t, "append", p.Append(t.Context(), calls[n].ID, 1, part))
			want[n] = append(want[n], part...)
		}
	}
	for n := range calls {
		s := settlement(calls[n], "")
		s.Appended = true
		if n == 1 {
			s.Reply.Body = []byte("data: [DONE]\n\n")
			want[n] = append(want[n], s.Reply.Body...)
		}
		ok(t, "settle", p.Settle(t.Context(), s))
	}
	p.reopen()
	for n := range calls {
		got := expectOutcome(t, p, reservation("run_a", n), agentbus.OutcomeSettled)
		if !bytes.Equal(got.Reply.Body, want[n]) {
			t.Errorf("stream %d came back as %d bytes, want %d", n, len(got.Reply.Body), len(want[n]))
		}
	}
}

func whatAFailedAttemptStreamedIsGone(p *place) { // G20
	t := p.t
	r := reservation("run_a", 0)
	call := reserve(t, p, r)
	ok(t, "append", p.Append(t.Context(), call.ID, 1, []byte("cut o")))
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: call.ID, Attempt: 1}))
	refused(t, "append after a void", p.Append(t.Context(), call.ID, 1, []byte("ff")), agentbus.CodeLeaseLost)
	call = reserve(t, p, r)
	ok(t, "append", p.Append(t.Context(), call.ID, 2, []byte("wh")))
	s := settlement(call, "ole")
	s.Appended = true
	ok(t, "settle", p.Settle(t.Context(), s))
	same(t, "body", string(expectOutcome(t, p, r, agentbus.OutcomeSettled).Reply.Body), "whole")
	refused(t, "append to an unknown call", p.Append(t.Context(), 1<<40, 1, []byte("x")), agentbus.CodeLeaseLost)
}

func aWholeReplyReplacesItsAppendedPart(p *place) { // G21
	t := p.t
	for n, drop := range []bool{false, true} {
		r := reservation("run_a", n)
		call := reserve(t, p, r)
		ok(t, "append", p.Append(t.Context(), call.ID, 1, []byte("wh")))
		s := settlement(call, "whole")
		s.Drop = drop
		ok(t, "settle", p.Settle(t.Context(), s))
		if drop {
			expectOutcome(t, p, r, agentbus.OutcomeExpired)
			continue
		}
		same(t, "body", string(expectOutcome(t, p, r, agentbus.OutcomeSettled).Reply.Body), "whole")
	}
}
