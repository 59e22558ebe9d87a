package storetest

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

var streams = map[string]func(*place){
	"AStreamIsReplayedToTheByte":         aStreamIsReplayedToTheByte,
	"WhatAFailedAttemptStreamedIsGone":   whatAFailedAttemptStreamedIsGone,
	"AWholeReplyReplacesItsAppendedPart": aWholeReplyReplacesItsAppendedPart,
	"AStreamIsToldToWhoFollows":          aStreamIsToldToWhoFollows,
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
			part := []byte("data: " + strconv.Itoa(i*n) + strings.Repeat(difficult, i) + "\r\n\r\n")
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

func aStreamIsToldToWhoFollows(p *place) { // G22
	t := p.t
	r := reservation("run_a", 0)
	call, other := reserve(t, p, r), reserve(t, p, reservation("run_a", 1))
	follow := func(attempt int) {
		t.Helper()
		ok(t, "follow", p.FollowStream(t.Context(), call.ID, attempt, call.Owner))
	}
	followed := func(owner string, want ...agentbus.StreamPiece) {
		t.Helper()
		got, err := p.FollowedStreams(t.Context(), owner)
		ok(t, "followed", err)
		same(t, "followed", got, want)
	}
	told := func(attempt, from int, want ...agentbus.StreamPiece) {
		t.Helper()
		got, err := p.ToldStream(t.Context(), call.ID, attempt, from)
		ok(t, "told", err)
		same(t, "told", got, want)
	}
	follow(1)
	follow(1) // as several may
	followed(call.Owner, agentbus.StreamPiece{Call: call.ID, Attempt: 1})
	followed("somebody else")
	pieces := []agentbus.StreamPiece{
		{Call: call.ID, Attempt: 1, Status: 200, Header: map[string][]string{"X-A": {difficult}}},
		{Call: call.ID, Attempt: 1, Place: 1, Data: []byte(difficult)},
		{Call: call.ID, Attempt: 1, Place: 2, Data: []byte("b")},
	}
	for _, piece := range pieces {
		ok(t, "tell", p.TellStream(t.Context(), r.Key, piece))
	}
	told(1, 0, pieces...)
	told(1, 2, pieces[2])
	told(1, 3)
	told(2, 0)
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: call.ID, Attempt: 1}))
	call = reserve(t, p, r)
	followed(call.Owner) // that attempt is over
	ok(t, "follow another", p.FollowStream(t.Context(), other.ID, 1, other.Owner))
	told(1, 0) // and what was told of it gone
	followed(call.Owner, agentbus.StreamPiece{Call: other.ID, Attempt: 1})
	ok(t, "tell", p.TellStream(t.Context(), r.Key, agentbus.StreamPiece{Call: call.ID, Attempt: 2, Status: 200}))
	ok(t, "forget", p.ForgetStream(t.Context(), call.ID, 2))
	ok(t, "forget", p.ForgetStream(t.Context(), other.ID, 1))
	told(2, 0)
	followed(call.Owner)
}
