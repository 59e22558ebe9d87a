package conversation_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

func peersOf(t *testing.T) conversation.Relay {
	t.Helper()
	address, err := agentbus.ParseAddress("@Carol@bots.example.com")
	if err != nil {
		t.Fatal(err)
	}
	return conversation.Relay{{Speaker: "ann"}, {Speaker: "Bob B", Agent: "writer"}, {Speaker: "carol", Address: address}}
}

// C14, X7: whom a reply mentions speaks next: the first that is another peer; what only looks like
// a mention is none.
func TestC14Mentions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]agentbus.Speaker{
		"@carol":                          "carol",
		"What do you think, @Carol?":      "carol",
		"(@carol.)":                       "carol",
		"@bob-b":                          "Bob B",
		"ask @writer":                     "Bob B",
		"@carol@bots.example.com":         "carol",
		"so: @carol@BOTS.example.com.":    "carol",
		"@ann @nobody @carol @bob-b":      "carol",
		"é @carol":                        "carol",
		"nobody":                          "",
		"@ann, that is me":                "",
		"carol@bots.example.com":          "",
		"x@carol":                         "",
		"é@carol":                         "",
		"@@carol":                         "",
		"@carol@elsewhere.example.com":    "",
		"@carol@bots.example.com@evil":    "",
		"@carol@localhost":                "",
		"@carolé":                         "",
		"@carol" + strings.Repeat("l", 9): "",
		"@" + strings.Repeat("x", 1<<10):  "",
		strings.Repeat("@", 1<<10):        "",
		"@":                               "",
		"\xff@\xff":                       "",
	} {
		step, err := peersOf(t).Next([]agentbus.Turn{{Speaker: "ann", Reply: agentbus.Reply{Text: text}}})
		if err != nil || step.Inside != (want != "") || step.Inside && (step.Speaker != want || step.Instead != "Bob B") || !step.Inside && step.Speaker != "Bob B" {
			t.Errorf("%.40q: %+v, %v; want %q", text, step, err, want)
		}
	}
}

// hop is what an agent is told of its place.
type hop struct {
	Turn, Parent  agentbus.TurnID
	Depth, Number int
	Final, Inline bool
}

// hears is a backend that says text, and notes where it was called.
func hears(got *[]hop, text string) agentbus.Backend {
	return agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		l := &c.Lineage
		*got = append(*got, hop{l.Turn, l.Parent, l.Depth, l.Chain.Hop, l.Chain.Final, c.Inline})
		return agentbus.Chunk{Text: text}, nil
	})
}

// C7, C8, X7: a relayed mention is made inside of the turn that wrote it, a hop
// further; that of a final turn is not relayed and told, and the order goes on. R23: replays decide alike, whatever
// the limit is by then.
func TestC7RelayedMentions(t *testing.T) {
	t.Parallel()
	var got []hop
	c := talk(5, "a", hears(&got, "ask @c"), "b", hears(&got, "no"), "c", hears(&got, "ask @a"))
	c.Plan = conversation.Relay{{Speaker: "a"}, {Speaker: "b"}, {Speaker: "c"}}
	m := newRecorder()
	r, err := conversation.Run(t.Context(), c, conversation.Options{Run: "r", MaxHops: 2, Journal: m, Runs: m})
	if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Fatalf("%+v, %v", r, err)
	}
	want := []hop{
		{"r.t0.a", "", 1, 1, false, true},
		{"r.t1.c-relayed", "r.t0.a", 2, 2, true, true}, // what it mentions is not called
		{"r.t2.a", "", 1, 1, false, true},
		{"r.t3.c-relayed", "r.t2.a", 2, 2, true, true},
		{"r.t4.a", "", 1, 1, false, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	record := m.record("r")
	var refused []string
	for _, e := range record.Events {
		if e.Type == agentbus.EventMentionRefused {
			refused = append(refused, string(e.Turn)+" "+string(e.Data))
		}
	}
	said := `{"speaker":"c","mentioned":"a","code":"chain_final"}`
	if diff := cmp.Diff([]string{"r.t1.c-relayed " + said, "r.t3.c-relayed " + said}, refused); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	replayed, err := conversation.Replay(t.Context(), c, record)
	if err != nil || replayed.Divergence != nil {
		t.Errorf("replay: %v, %v", replayed.Divergence, err)
	}
}

// R23: drives with other limits decide otherwise about one mention, and each is
// replayed as it decided: the halt of one that began no turn tells whose it would
// have been.
func TestMentionsAreReplayedAsEachDriveDecided(t *testing.T) {
	t.Parallel()
	for name, drives := range map[string][]int{"refused later": {2, 1, 1}, "relayed later": {1, 2, 2}, "both, twice": {2, 1, 2, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []hop
			c := talk(3, "a", hears(&got, "ask @c"), "b", hears(&got, "no"), "c", hears(&got, "yes"))
			c.Plan = conversation.Relay{{Speaker: "a"}, {Speaker: "b"}, {Speaker: "c"}}
			for i := range c.Participants[1:] {
				c.Participants[1+i].MaxCost = 5
			}
			m := newRecorder()
			for i, hops := range drives {
				o := conversation.Options{Run: "r", MaxHops: hops, Journal: m, Runs: m, Owner: "one"}
				if c.Budget = new(agentbus.Micros(1 + i)); i == len(drives)-1 {
					c.Budget = nil
				}
				if _, err := conversation.Run(t.Context(), c, o); err != nil {
					t.Fatal(err)
				}
			}
			replayed, err := conversation.Replay(t.Context(), c, m.record("r"))
			if err != nil || replayed.Divergence != nil || len(replayed.Turns) != 3 {
				t.Errorf("replay: %v, %v, %d turns", replayed.Divergence, err, len(replayed.Turns))
			}
		})
	}
}

// P10: a mention at the limit of depth is not relayed either: the turn would fail.
func TestP10MentionsStopAtTheDepthLimit(t *testing.T) {
	t.Parallel()
	var got []hop
	c := talk(3, "a", hears(&got, "@b"), "b", hears(&got, "@a"))
	c.Plan = conversation.Relay{{Speaker: "a"}, {Speaker: "b"}}
	r, err := conversation.Run(t.Context(), c, conversation.Options{Run: "r", MaxDepth: 3})
	if err != nil || r.Halt.Kind != agentbus.HaltMaxTurns || len(got) != 3 || got[1].Depth != 2 || got[2].Depth != 1 {
		t.Errorf("%+v, %v, %+v", r, err, got)
	}
}

// R15: a run that was cut in a relayed turn goes on in it, also when the limit
// has changed meanwhile; none is told to an agent under another plan.
func TestResumeInARelayedTurn(t *testing.T) {
	t.Parallel()
	var got []hop
	fails := true
	c := talk(3, "a", hears(&got, "@c"), "b", hears(&got, "x"), "c", agentbus.Answer(func(ctx context.Context, call *agentbus.Call) (agentbus.Chunk, error) {
		if fails {
			return agentbus.Chunk{}, reset
		}
		r, err := agentbus.Collect(hears(&got, "done").Call(ctx, call))
		return agentbus.Chunk{Text: r.Text}, err
	}))
	c.Plan = conversation.Relay{{Speaker: "a"}, {Speaker: "b"}, {Speaker: "c"}}
	m := newRecorder()
	o := conversation.Options{Run: "r", Journal: m, Runs: m}
	if r, err := conversation.Run(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltParticipantError {
		t.Fatalf("%+v, %v", r, err)
	}
	fails, o.MaxHops = false, 3
	if r, err := conversation.Run(t.Context(), c, o); err != nil || r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Fatalf("%+v, %v", r, err)
	}
	want := []hop{{"r.t0.a", "", 1, 1, false, true}, {"r.t1.c-relayed", "r.t0.a", 2, 2, false, true}, {"r.t2.a", "", 1, 1, false, true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	replayed, err := conversation.Replay(t.Context(), c, m.record("r"))
	if err != nil || replayed.Divergence != nil {
		t.Errorf("replay: %v, %v", replayed.Divergence, err)
	}
	got, c.Plan = nil, nil
	if _, err := conversation.Run(t.Context(), c, conversation.Options{Run: "other"}); err != nil || got[0].Inline || got[1].Number != 1 {
		t.Errorf("round-robin: %+v, %v", got, err)
	}
}

// A mention is told to nobody when a relay is faulty.
func TestRelayFaults(t *testing.T) {
	t.Parallel()
	var got []hop
	c := talk(1, "a", hears(&got, ""), "b", hears(&got, ""))
	for _, plan := range []conversation.Relay{{}, {{Speaker: "a"}, {Speaker: "a"}}, {{Speaker: "a"}, {Speaker: "z"}}} {
		c.Plan = plan
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "plan: ") {
			t.Errorf("%v: %v", plan, err)
		}
	}
	raw, err := json.Marshal(peersOf(t))
	if err != nil || !strings.Contains(string(raw), "Carol") {
		t.Errorf("%s, %v", raw, err)
	}
}

// C14, C17: whom a message mentions, in its order, each once.
func TestMentioned(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]agentbus.Speaker{
		"@carol @ann compare":                                 {"carol", "ann"},
		"@ann: do it; @writer too, with @ann":                 {"ann", "Bob B"},
		"@carol@bots.example.com and @bob-b":                  {"carol", "Bob B"},
		"nobody, not even x@carol or @carol@else.example.com": nil,
	} {
		if diff := cmp.Diff(want, conversation.Mentioned(text, peersOf(t))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}
