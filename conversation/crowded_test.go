package conversation_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// R20, R22, R23: a branch that asks while too many wait has failed like any other, and
// its join decides at once what becomes of the run.
func TestBranchThatFindsNoRoomToAsk(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		join           conversation.Join
		b              func(*agents) agentbus.Backend
		halt           agentbus.HaltKind
		of, want, told string
	}{
		"best effort goes on without it": {
			conversation.JoinBestEffort, func(a *agents) agentbus.Backend { return a.says("B") },
			agentbus.HaltDone, "", "0 a failed overloaded|1 b done B|2 synth done S", "fanout.joined",
		},
		"all needs it": {
			conversation.JoinAll, func(a *agents) agentbus.Backend { return a.says("B") },
			agentbus.HaltParticipantError, "a", "", "run.paused",
		},
		"nobody else has answered": {
			conversation.JoinBestEffort, func(a *agents) agentbus.Backend { return a.streams(reset) },
			agentbus.HaltParticipantError, "a", "", "run.paused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a agents
			m := newRecorder()
			j := &crowded{recorder: m}
			c := fans(tt.join, "a", a.asking("A"), "b", tt.b(&a), "synth", a.says("S"))
			r, err := ran(t.Context(), c, conversation.Options{Run: "r", Journal: j, Runs: j})
			if err != nil || r.Halt.Kind != tt.halt || r.Halt.Participant != tt.of || outcomes(r.Turns) != tt.want || len(m.Waiting()) != 0 {
				t.Errorf("%+v, %v: %s", r.Halt, err, outcomes(r.Turns))
			}
			told := kinds(m.record("r"))
			if n := len(told); tt.told != told[n-1] && tt.told != told[n-5] {
				t.Errorf("told %q", told)
			}
		})
	}
}

// R22: what somebody below has asked had its room, and is still waited for when a
// branch beside it finds none.
func TestBelowStillWaitsBesideNoRoom(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	j := &crowded{recorder: m, room: 1}
	inner := talk(1, "x", a.asking("X"), "y", a.says("Y"))
	inner.Name = "inner"
	c := fans(conversation.JoinBestEffort, "a", conversation.Backend(conversation.BackendConfig{Conversation: inner}), "b", a.asking("B"))
	o := conversation.Options{Run: "r", Journal: j, Runs: j}
	r, err := ran(t.Context(), c, o)
	ids := waits(t, r, err)
	if len(ids) != 1 || r.Halt.Participant != "a" || !m.Resolve(ids[0], granted()) {
		t.Fatalf("%+v waits for %v", r.Halt, ids)
	}
	r, err = ran(t.Context(), c, o)
	if err != nil || r.Halt.Kind != agentbus.HaltDone || !strings.HasPrefix(outcomes(r.Turns), "0 a done [x] X granted") || !strings.HasSuffix(outcomes(r.Turns), "|1 b failed overloaded") {
		t.Errorf("%+v, %v: %s", r.Halt, err, outcomes(r.Turns))
	}
}

// R20, R22: a branch that failed before its join was met stands: who resumes the run
// neither asks it anew nor joins again, and calls nobody that waits behind.
func TestFailedBranchOfAMetJoinStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a agents
		m := newRecorder()
		c := fans(conversation.JoinAny, "a", a.streams(reset), "b", a.after(second, "B", nil), "synth", a.asking("S"))
		o := conversation.Options{Run: "r", Journal: m, Runs: m}
		r, err := ran(t.Context(), c, o)
		ids := waits(t, r, err)
		before := kinds(m.record("r"))
		r, err = ran(t.Context(), c, o)
		if waits(t, r, err); len(a.calls) != 3 {
			t.Errorf("called %v", a.turns())
		}
		if diff := cmp.Diff(append(before, "run.resumed", "run.waiting"), kinds(m.record("r"))); diff != "" {
			t.Error(diff)
		}
		m.Resolve(ids[0], granted())
		r, err = ran(t.Context(), c, o)
		if want := "0 a failed agent_unavailable|1 b done B|2 synth done S granted"; err != nil || !strings.HasPrefix(outcomes(r.Turns), want) {
			t.Errorf("%v: %s", err, outcomes(r.Turns))
		}
	})
}

// R18, R23: a run that waited for the credential of its payer has gone on with it when
// its branches are begun, and not when it is ended before.
func TestEndedBeforeAFanOutGoesOn(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	ctx, cancel := context.WithCancel(t.Context())
	ends := func() {}
	c := talk(9, "a", a.says("A"), "b", a.says("B"))
	c.Plan = conversation.PlanFunc(func(done []agentbus.Turn) (conversation.Step, error) {
		ends()
		return conversation.Step{Together: []agentbus.Speaker{"a", "b"}, Done: len(done) > 0}, nil
	})
	o := conversation.Options{Run: "r", Journal: m, Runs: m, Halt: &agentbus.Halt{Kind: agentbus.HaltWaitingAuth, Reason: "why"}}
	if _, err := ran(t.Context(), c, o); err != nil {
		t.Fatal(err)
	}
	o.Halt, ends = nil, cancel
	r, err := conversation.Run(ctx, c, o)
	if ends = func() {}; err != nil || r.Halt.Kind != agentbus.HaltAbort || len(a.calls) != 0 {
		t.Fatalf("%+v, %v", r.Halt, err)
	}
	if err := replays(c, m.record("r")); err != nil {
		t.Error(err)
	}
	if r, err := ran(t.Context(), c, o); err != nil || outcomes(r.Turns) != "0 a done A|1 b done B" {
		t.Errorf("%v: %s", err, outcomes(r.Turns))
	}
}
