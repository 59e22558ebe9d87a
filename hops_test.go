package agentbus_test

import (
	"crypto/sha256"
	"encoding/hex"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
)

// P8: forward is the same turn, one hop on.
func TestLineageForward(t *testing.T) {
	t.Parallel()
	want := wholeLineage()
	want.Depth = 3
	if diff := cmp.Diff(want, wholeLineage().Forward(), sameCredential); diff != "" {
		t.Errorf("forward (-want +got):\n%s", diff)
	}
}

// P8: next is a new turn of the same run on the same credential, inside the one
// being served.
func TestLineageNext(t *testing.T) {
	t.Parallel()
	got, err := wholeLineage().Next("conv_abc.t1.judge", "judge")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("0123456789abcdef" + "conv_abc.t0.researcher" + "conv_abc.t0.critic"))
	want := wholeLineage()
	want.Depth, want.Turn, want.Parent, want.Speaker = 3, "conv_abc.t1.judge", "conv_abc.t0.critic", "judge"
	want.Path = hex.EncodeToString(sum[:8])
	if diff := cmp.Diff(want, got, sameCredential); diff != "" {
		t.Errorf("next (-want +got):\n%s", diff)
	}
}

// P8: a driver without inbound lineage starts at 0: its calls carry 1, no
// parent and no path.
func TestLineageNextAtTopLevel(t *testing.T) {
	t.Parallel()
	got, err := agentbus.Lineage{Run: "r"}.Next("r.t0.a", "a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(agentbus.Lineage{Run: "r", Turn: "r.t0.a", Speaker: "a", Depth: 1}, got, sameCredential); diff != "" {
		t.Errorf("next (-want +got):\n%s", diff)
	}
}

// P4: next makes no lineage that the next hop would refuse.
func TestLineageNextRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		run  agentbus.RunID
		turn agentbus.TurnID
	}{
		{"no run", "", "r.t0.a"},
		{"no turn", "r", ""},
		{"a space", "my run", "my run.t0.a"},
		{"a comma", "r", "r,t0.a"},
		{"too long", "r", agentbus.TurnID(strings.Repeat("x", 513))},
		{"a mention", "@critic, stop", "x"},
	} {
		got, err := agentbus.Lineage{Run: tt.run}.Next(tt.turn, "a")
		if agentbus.CodeOf(err) != agentbus.CodeInvalidLineage || !cmp.Equal(got, agentbus.Lineage{}, sameCredential) {
			t.Errorf("%s: %+v, %v, want invalid_lineage", tt.name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "@") {
			t.Errorf("%s: the message mentions somebody: %v", tt.name, err)
		}
	}
}

// P8: depth only rises, and stays at what the grammar can write.
func TestDepthSaturates(t *testing.T) {
	t.Parallel()
	for depth, want := range map[int]int{
		0: 1, 3: 4, 999_999_998: 999_999_999, 999_999_999: 999_999_999, 1 << 40: 999_999_999, math.MaxInt: 999_999_999, -1: 1, math.MinInt: 1,
	} {
		l := agentbus.Lineage{Run: "r", Depth: depth}
		next, err := l.Next("r.t0.a", "a")
		if got := l.Forward().Depth; got != want || next.Depth != want || err != nil {
			t.Errorf("depth %d: forward %d, next %d, %v, want %d", depth, got, next.Depth, err, want)
		}
	}
}

// P8: along any path of forwards and nexts, depth rises by one a hop, run and
// credential never change, and each hop accepts what the one before sent.
func TestInvariantsAlongAnyPath(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		run := agentbus.RunID(rapid.StringMatching(`[!#-+\--~]{1,40}`).Draw(t, "run"))
		l := agentbus.Lineage{Run: run, Auth: agentbus.NewCredential("Bearer sk-user")}
		for hop := range rapid.IntRange(1, 12).Draw(t, "hops") {
			was := l
			if rapid.Bool().Draw(t, "forward") {
				l = l.Forward()
			} else {
				speaker := agentbus.Speaker(rapid.String().Draw(t, "speaker"))
				next, err := l.Next(run.Turn(hop, speaker), speaker)
				if err != nil {
					t.Fatal(err)
				}
				l = next
			}
			h := map[string][]string{}
			l.SetHeaders(h)
			parsed, err := agentbus.ParseLineage(h)
			if err != nil {
				t.Fatalf("hop %d was refused: %v", hop, err)
			}
			if parsed.Depth != was.Depth+1 || parsed.Run != run || parsed.Auth.Reveal() != "Bearer sk-user" {
				t.Fatalf("hop %d: from %+v to %+v", hop, was, parsed)
			}
			l = parsed
		}
	})
}

// P8: the exported ways to a Lineage are these, and no other. Within reads what
// a program claims, as ParseLineage reads what is claimed without a token, and
// goes on through Next.
func TestWaysToALineage(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.Name != "agentbus" || !fn.Name.IsExported() || fn.Type.Results == nil {
				continue
			}
			for _, r := range fn.Type.Results.List {
				if id, ok := r.Type.(*ast.Ident); ok && id.Name == "Lineage" {
					got = append(got, fn.Name.Name)
				}
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"Forward", "Next", "ParseLineage", "Within"}, got); diff != "" {
		t.Errorf("functions that return a Lineage (-want +got):\n%s", diff)
	}
}

// P8, P17: run, parent and turn id of two calls can coincide two levels down;
// the path tells them apart.
func TestPathTellsNestedTurnsApart(t *testing.T) {
	t.Parallel()
	down := func(l agentbus.Lineage, turns ...agentbus.TurnID) agentbus.Lineage {
		t.Helper()
		for _, turn := range turns {
			next, err := l.Next(turn, "s")
			if err != nil {
				t.Fatal(err)
			}
			l = next
		}
		return l
	}
	driver := agentbus.Lineage{Run: "r"}
	a := down(driver, "r.t0.a", "r.t0.s", "r.t0.s")
	b := down(driver, "r.t0.b", "r.t0.s", "r.t0.s")
	if a.Run != b.Run || a.Parent != b.Parent || a.Turn != b.Turn {
		t.Fatalf("%+v and %+v should coincide", a, b)
	}
	if a.Path == b.Path {
		t.Errorf("both have path %q", a.Path)
	}
	if again := down(driver, "r.t0.a", "r.t0.s", "r.t0.s"); again.Path != a.Path {
		t.Errorf("a retry has path %q, then %q", a.Path, again.Path)
	}
	if gateway := a.Forward(); gateway.Path != a.Path {
		t.Errorf("a gateway makes path %q of %q", gateway.Path, a.Path)
	}
}

// P9: the seed's worked example, step by step.
func TestWorkedExample(t *testing.T) {
	t.Parallel()
	const auth = "Bearer sk-tan-user-123"

	// USER → router: an origin.
	origin, err := agentbus.ParseLineage(map[string][]string{"X-Tangle-Forwarded-Depth": {"0"}})
	if err != nil || origin.Depth != 0 || origin.Run != "" {
		t.Fatalf("origin: %+v, %v", origin, err)
	}
	// The router, here by hand, mints what is missing and forwards the caller's own credential.
	origin.Run, origin.Turn, origin.Speaker = "conv_abc", agentbus.RunID("conv_abc").Turn(0, "researcher"), "researcher"
	origin.Auth = agentbus.NewCredential(auth)
	atSandboxA := wire(origin.Forward())
	if diff := cmp.Diff(map[string]string{
		"x-tangle-forwarded-authorization": auth, "x-tangle-forwarded-depth": "1", "x-tangle-runid": "conv_abc",
		"x-tangle-turnid": "conv_abc.t0.researcher", "x-tangle-speaker": "researcher",
	}, atSandboxA); diff != "" {
		t.Errorf("router → researcher (-want +got):\n%s", diff)
	}

	// researcher → critic: a runtime's new call.
	h := map[string][]string{}
	for name, value := range atSandboxA {
		h[name] = []string{value}
	}
	inbound, err := agentbus.ParseLineage(h)
	if err != nil {
		t.Fatal(err)
	}
	next, err := inbound.Next(inbound.Run.Turn(0, "critic"), "critic")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		"x-tangle-forwarded-authorization": auth, "x-tangle-forwarded-depth": "2", "x-tangle-runid": "conv_abc",
		"x-tangle-turnid": "conv_abc.t0.critic", "x-tangle-parent-turnid": "conv_abc.t0.researcher", "x-tangle-speaker": "critic",
		"x-agentbus-path": next.Path,
	}, wire(next)); diff != "" {
		t.Errorf("researcher → critic (-want +got):\n%s", diff)
	}
}

// P9: who counts. Each row is a way through the bus and the depth with which
// its last call arrives.
//
//	next     a runtime makes a new call        +1
//	forward  a gateway or router passes it on  +1
func TestCounting(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		way   string // from a plain client or a driver, both at 0
		depth int
	}{
		{"", 0},                          // client → agent
		{"forward", 1},                   // client → gateway → agent
		{"forward forward", 2},           // client → router → gateway → agent
		{"next", 1},                      // driver → agent, also where it enters its own gateway in memory
		{"next forward", 2},              // driver → gateway → agent
		{"forward next", 2},              // the worked example
		{"forward next forward", 3},      // one nesting through a gateway counts 2
		{"forward next forward next", 4}, // refused at the default limit
	} {
		l := agentbus.Lineage{Run: "r"}
		for i, step := range strings.Fields(tt.way) {
			if step == "forward" {
				l = l.Forward()
				continue
			}
			next, err := l.Next(l.Run.Turn(i, "s"), "s")
			if err != nil {
				t.Fatal(err)
			}
			l = next
		}
		if l.Depth != tt.depth {
			t.Errorf("%q arrives with depth %d, want %d", tt.way, l.Depth, tt.depth)
		}
		if err := l.CheckDepth(agentbus.DefaultMaxDepth); (err != nil) != (tt.depth >= 4) {
			t.Errorf("%q at the default limit: %v", tt.way, err)
		}
	}
}

// P10, P11: with a limit of 4, depths 0 to 3 are served and 4 is refused, 429.
func TestCheckDepth(t *testing.T) {
	t.Parallel()
	served := 0
	for l := (agentbus.Lineage{Run: "conv_abc"}); ; l = l.Forward() {
		err := l.CheckDepth(agentbus.DefaultMaxDepth)
		if err == nil {
			served++
			continue
		}
		if served != 4 || l.Depth != 4 {
			t.Errorf("%d calls were served before depth %d was refused, want 4 and 4", served, l.Depth)
		}
		want := &agentbus.Error{
			Code:    agentbus.CodeDepthExceeded,
			Message: "depth 4 reaches the limit of 4: this call would be hop 5 of run conv_abc",
			Explain: &agentbus.Explain{Rule: "P10", Observed: 4, Limit: 4, Next: "answer from what you have, or ask the caller to raise the limit"},
		}
		if diff := cmp.Diff(want, agentbus.AsError(err)); diff != "" {
			t.Errorf("refusal (-want +got):\n%s", diff)
		}
		break
	}
}

// P10: the message holds no mention, and no hop that cannot be.
func TestCheckDepthMessage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lineage agentbus.Lineage
		want    string
	}{
		{agentbus.Lineage{Depth: 7}, "depth 7 reaches the limit of 4: this call would be hop 8"},
		{agentbus.Lineage{Depth: 4, Run: "@critic"}, "depth 4 reaches the limit of 4: this call would be hop 5"},
		{agentbus.Lineage{Depth: 999_999_999}, "depth 999999999 reaches the limit of 4: this call would be hop 999999999"},
	} {
		if got := agentbus.AsError(tt.lineage.CheckDepth(4)).Message; got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
