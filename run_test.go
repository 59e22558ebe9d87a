package agentbus_test

import (
	"testing"

	"github.com/agentbus/agentbus"
)

// R7: an execution's id is a function of payer, run, path, turn and
// conversation, and of nothing else: it is the same after a crash.
func TestExecutionOf(t *testing.T) {
	t.Parallel()
	l := agentbus.Lineage{Run: "conv_abc", Path: "0123456789abcdef", Turn: "conv_abc.t0.critic"}
	got := agentbus.ExecutionOf("payer", l, "review")
	if want := agentbus.ExecutionID("run_ec9bf15ae4fda98fb198e0eeaa39b989"); got != want { // stored in journals: it must not change
		t.Errorf("got %s, want %s", got, want)
	}

	same := l
	same.Depth, same.Parent, same.Speaker, same.TraceParent, same.Auth = 3, "p", "s", traceParent, agentbus.NewCredential(canary)
	if other := agentbus.ExecutionOf("payer", same, "review"); other != got {
		t.Errorf("a retry along another way is %s, not %s", other, got)
	}
	for name, other := range map[string]agentbus.ExecutionID{
		"payer":        agentbus.ExecutionOf("other", l, "review"),
		"conversation": agentbus.ExecutionOf("payer", l, "other"),
		"run":          agentbus.ExecutionOf("payer", agentbus.Lineage{Run: "x", Path: l.Path, Turn: l.Turn}, "review"),
		"path":         agentbus.ExecutionOf("payer", agentbus.Lineage{Run: l.Run, Turn: l.Turn}, "review"),
		"turn":         agentbus.ExecutionOf("payer", agentbus.Lineage{Run: l.Run, Path: l.Path}, "review"),
	} {
		if other == got {
			t.Errorf("another %s has the same execution", name)
		}
	}
}

// R16: a halt is final only when it is.
func TestHaltKindFinal(t *testing.T) {
	t.Parallel()
	for kind, want := range map[agentbus.HaltKind]bool{
		agentbus.HaltMaxTurns: true, agentbus.HaltDone: true, agentbus.HaltPredicate: true, agentbus.HaltDeadline: true,
		agentbus.HaltBudget: false, agentbus.HaltAbort: false, agentbus.HaltParticipantError: false,
		agentbus.HaltRecursionLimit: true, agentbus.HaltWaitingAuth: false, agentbus.HaltWaiting: false,
	} {
		if got := kind.Final(); got != want {
			t.Errorf("%s: final = %t, want %t", kind, got, want)
		}
		if got := (agentbus.Halt{Kind: kind}).Final(); got != want || !(agentbus.Halt{Kind: kind, Failed: true}).Final() {
			t.Errorf("a halt by %s: final = %t, want %t", kind, got, want)
		}
	}
}

func TestHaltString(t *testing.T) {
	t.Parallel()
	failed := &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "connection refused"}
	for _, tt := range []struct {
		halt agentbus.Halt
		want string
	}{
		{agentbus.Halt{Kind: agentbus.HaltMaxTurns, Turns: 4}, "max_turns (4)"},
		{agentbus.Halt{Kind: agentbus.HaltDone, Turns: 4}, "done"},
		{agentbus.Halt{Kind: agentbus.HaltDeadline}, "deadline"},
		{agentbus.Halt{Kind: agentbus.HaltPredicate, Reason: "agreed"}, "predicate: agreed"},
		{agentbus.Halt{Kind: agentbus.HaltAbort}, "abort"},
		{agentbus.Halt{Kind: agentbus.HaltBudget, SpentTokens: 12, LimitTokens: 10}, "budget (12 of 10 tokens)"},
		{agentbus.Halt{Kind: agentbus.HaltRecursionLimit, Reason: "why"}, "recursion_limit: why"},
		{agentbus.Halt{Kind: agentbus.HaltWaiting, Participant: "shop", Reason: "pay"}, "waiting[shop]: pay"},
		{agentbus.Halt{Kind: agentbus.HaltAbort, Reason: "interrupted"}, "abort: interrupted"},
		{agentbus.Halt{Kind: agentbus.HaltBudget, Spent: 1_500_000, Limit: 1_000_000}, "budget ($1.500000 of $1.000000)"},
		{agentbus.Halt{Kind: agentbus.HaltParticipantError, Participant: "critic", Error: failed}, "participant_error[critic]: connection refused"},
		{agentbus.Halt{Kind: agentbus.HaltParticipantError, Reason: "gone"}, "participant_error: gone"},
	} {
		if got := tt.halt.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
