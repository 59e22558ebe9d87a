package agentbus_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
)

// P4: a minted id is "run_" and a UUID of version 7 and of the RFC's variant.
func TestNewRunID(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^run_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[agentbus.RunID]bool{}
	for range 10_000 {
		id := agentbus.NewRunID()
		if !form.MatchString(string(id)) {
			t.Fatalf("%q is not run_ and a UUIDv7", id)
		}
		if seen[id] {
			t.Fatalf("%q was minted twice", id)
		}
		seen[id] = true
	}
}

func TestNewRunIDSortsByTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ids []agentbus.RunID
		for _, step := range []time.Duration{time.Millisecond, time.Second, time.Hour, 24 * 365 * time.Hour} {
			ids = append(ids, agentbus.NewRunID())
			<-time.After(step)
		}
		ids = append(ids, agentbus.NewRunID())
		if !slices.IsSorted(ids) {
			t.Errorf("ids minted one after the other do not sort: %q", ids)
		}
		if got, want := string(ids[0][4:17]), "00dc6acf-ac00"; got != want { // 2000-01-01, when a bubble begins
			t.Errorf("the id begins with %s, want the milliseconds %s", got, want)
		}
	})
}

func TestTurnIDIndex(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		id   agentbus.TurnID
		run  agentbus.RunID
		want int
	}{
		{"conv_abc.t0.critic", "conv_abc", 0},
		{"conv_abc.t17.critic", "conv_abc", 17},
		{"r.t999999999.x", "r", 999_999_999},
		{"r.t1000000000.x", "r", -1},
		{"r.t99999999999999999999.x", "r", -1},
		{"r.t-1.x", "r", -1},
		{"r.t+1.x", "r", -1},
		{"r.t007.x", "r", -1}, // Turn writes no leading zeros
		{"r.t1_0.x", "r", -1},
		{"r.t1.5.x", "r", 1}, // a slug of ours has no dot, somebody else's may
		{"r.t1", "r", -1},
		{"r.t1.", "r", -1},
		{"r.t.x", "r", -1},
		{"r.x1.y", "r", -1},
		{"other.t1.x", "r", -1},
		{"r.t1.x", "", -1},
		{"", "r", -1},
		{"", "", -1},
	} {
		if got := tt.id.Index(tt.run); got != tt.want {
			t.Errorf("%q.Index(%q) = %d, want %d", tt.id, tt.run, got, tt.want)
		}
	}
}

// P4, P7: a turn that is minted has an id that may be sent, and is another one than
// any other where it cannot begin with its run.
func TestMintTurn(t *testing.T) {
	t.Parallel()
	short, long := agentbus.RunID(strings.Repeat("r", 505)), agentbus.RunID(strings.Repeat("r", 506))
	if got := short.MintTurn(1, "Bob"); got != short.Turn(1, "Bob") || len(got) != 512 {
		t.Errorf("%q", got)
	}
	one, two := long.MintTurn(1, "Bob"), long.MintTurn(1, "Bob")
	if one == two || !agentbus.RunID(one).Valid() || one.Index(long) != -1 {
		t.Errorf("%q, %q", one, two)
	}
}

// P16: a turn id tells its index, whatever the run and the speaker are called.
func TestTurnIDIndexOfTurn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run := agentbus.RunID(rapid.String().Draw(t, "run"))
		index := rapid.IntRange(0, 999_999_999).Draw(t, "index")
		speaker := agentbus.Speaker(rapid.String().Draw(t, "speaker"))
		id := run.Turn(index, speaker)
		if again := run.Turn(index, speaker); again != id {
			t.Errorf("the turn id is %q, then %q", id, again)
		}
		if got := id.Index(run); got != index {
			t.Errorf("%q.Index(%q) = %d, want %d", id, run, got, index)
		}
	})
}

// P17: a nested run shares the run id and restarts its index, so one turn id
// stands for two turns; run and turn id alone are no key.
func TestTurnIDsOfNestedRunsCollide(t *testing.T) {
	t.Parallel()
	run := agentbus.RunID("run")
	outer, inner := run.Turn(0, "researcher"), run.Turn(0, "Researcher")
	if outer != inner {
		t.Fatalf("%q and %q: want one id", outer, inner)
	}
	a := agentbus.TurnKey{Payer: "p", Agent: "a", Run: run, ID: outer}
	b := agentbus.TurnKey{Payer: "p", Agent: "a", Run: run, ID: inner, Parent: outer}
	if a.Hash() == b.Hash() {
		t.Error("the outer and the nested turn have one key")
	}
}
