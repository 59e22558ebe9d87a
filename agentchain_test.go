package agentbus_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
)

// C5, X3, X4, X5: what is no chain is refused, and never read as another one.
func TestParseAgentChain(t *testing.T) {
	t.Parallel()
	chain := func(hop, most int, final bool) *agentbus.AgentChain {
		return &agentbus.AgentChain{Hop: hop, MaxHops: most, Final: final}
	}
	for raw, want := range map[string]*agentbus.AgentChain{
		`{"hop":1,"max_hops":4,"is_final":false}`:   chain(1, 4, false),
		`{"hop":1,"max_hops":4}`:                    chain(1, 4, false),
		` { "max_hops" : 4 , "hop" : 4 } `:          chain(4, 4, true), // derived, never copied (C6)
		`{"hop":2,"max_hops":4,"is_final":true}`:    chain(2, 4, true), // X4: early is honoured
		`{"hop":1,"max_hops":60,"note":{"a":[1]}}`:  chain(1, 60, false),
		`{"hop":64,"max_hops":64,"is_final":true}`:  chain(64, 64, true),
		`{"hop":4,"max_hops":4,"is_final":false}`:   nil, // X4
		`{"hop":1,"max_hops":1000}`:                 nil, // X3
		`{"hop":0,"max_hops":4}`:                    nil, // X5, and the rows below
		`{"hop":-1,"max_hops":4}`:                   nil,
		`{"hop":1.5,"max_hops":4}`:                  nil,
		`{"hop":1.0,"max_hops":4}`:                  nil,
		`{"hop":"2","max_hops":4}`:                  nil,
		`{"hop":1e400,"max_hops":4}`:                nil,
		`{"hop":1e0,"max_hops":4}`:                  nil,
		`{"hop":9223372036854775808,"max_hops":4}`:  nil,
		`{"hop":18446744073709551617,"max_hops":4}`: nil,
		`{"hop":null,"max_hops":4}`:                 nil,
		`{"hop":5,"max_hops":4}`:                    nil,
		`{"hop":1,"max_hops":null}`:                 nil,
		`{"hop":1}`:                                 nil,
		`{"max_hops":4}`:                            nil,
		`{"hop":1,"max_hops":4,"is_final":null}`:    nil,
		`{"hop":1,"max_hops":4,"is_final":"true"}`:  nil,
		`{"hop":1,"max_hops":4,"is_final":1}`:       nil,
		`null`:                                      nil, `[]`: nil, `1`: nil, ``: nil, `{`: nil, `{"hop":1,"max_hops":4}}`: nil, `{"hop":1,"max_hops":4} {}`: nil,
	} {
		got, err := agentbus.ParseAgentChain([]byte(raw))
		switch {
		case want == nil && agentbus.CodeOf(err) != agentbus.CodeInvalidLineage:
			t.Errorf("%s: %v, %v; want %s", raw, got, err, agentbus.CodeInvalidLineage)
		case want != nil && (err != nil || got != *want):
			t.Errorf("%s = %v, %v; want %v", raw, got, err, *want)
		}
	}
}

// X6: copies must be equal as JSON, and no member stands there twice, in
// whatever case.
func TestX6CopiesAndDuplicates(t *testing.T) {
	t.Parallel()
	const a, b = `{"hop":1,"max_hops":4}`, `{ "max_hops": 4, "hop": 1 }`
	if c, found, err := agentbus.ParseAgentChains([]byte(a), nil, []byte(b)); err != nil || !found || c.Hop != 1 {
		t.Errorf("equal copies: %v, %v, %v", c, found, err)
	}
	if c, found, err := agentbus.ParseAgentChains(nil, nil); err != nil || found {
		t.Errorf("nothing: %v, %v, %v", c, found, err)
	}
	for _, other := range []string{`{"hop":2,"max_hops":4}`, `{"hop":1,"max_hops":4,"is_final":false}`, `{"hop":1,"max_hops":5}`} {
		if _, _, err := agentbus.ParseAgentChains([]byte(a), []byte(other)); agentbus.CodeOf(err) != agentbus.CodeInvalidLineage {
			t.Errorf("%s beside %s: %v", other, a, err)
		}
	}
	for _, raw := range []string{`{"hop":1,"hop":2,"max_hops":4}`, `{"hop":1,"HOP":2,"max_hops":4}`, `{"Hop":1,"max_hops":4}`, `{"hop":1,"max_hops":4,"Is_Final":true}`} {
		if _, err := agentbus.ParseAgentChain([]byte(raw)); agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
			t.Errorf("%s: %v; want %s", raw, err, agentbus.CodeInvalidRequest)
		}
	}
}

// C9: the cue is what the seed says, byte for byte.
func TestC9CueIsByteExact(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]agentbus.AgentChain{
		"You are responding as hop 2 of a chain capped at 4 hops. [2 hops remaining.]":                              {Hop: 2, MaxHops: 4},
		"You are responding as hop 3 of a chain capped at 4 hops. [1 hop remaining.]":                               {Hop: 3, MaxHops: 4},
		"You are responding as the FINAL hop (4 of 4). Synthesize a conclusion \u2014 do not invite another agent.": {Hop: 4, MaxHops: 4, Final: true},
		"You are responding as the FINAL hop (2 of 2). Synthesize a conclusion \u2014 do not invite another agent.": {Hop: 2, MaxHops: 4, Final: true},
	} {
		if got := c.Render(); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
		var told *agentbus.Call
		heard := agentbus.Answer(func(_ context.Context, call *agentbus.Call) (agentbus.Chunk, error) {
			told = call
			return agentbus.Chunk{}, nil
		})
		call := agentbus.Call{Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "hi"}}, Seen: 1}
		_, _ = agentbus.Collect(agentbus.Wrap(heard, agentbus.Cue).Call(t.Context(), &call))
		if told != &call { // no chain, no cue
			t.Error("a call without a chain was changed")
		}
		call.Lineage.Chain = &c
		_, _ = agentbus.Collect(agentbus.Wrap(heard, agentbus.Cue).Call(t.Context(), &call))
		if len(told.Messages) != 2 || told.Messages[0].Role != agentbus.RoleSystem || told.Messages[0].Content != want || told.Seen != 2 || len(call.Messages) != 1 {
			t.Errorf("%+v: told %+v", c, told)
		}
	}
}

// C6, C7, C11: over every chain of calls, whatever each hop claims, the hop only
// rises and never passes the smallest maximum on the way; the last one calls
// nobody (C8).
func TestChainsOnlyRise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		local := rapid.IntRange(0, 8).Draw(t, "local")
		at, most, before := agentbus.RootChain(local), local, 0
		for range 70 {
			next, err := at.Next()
			if err != nil {
				if agentbus.CodeOf(err) != agentbus.CodeChainFinal || !at.Final {
					t.Fatalf("after %+v: %v", at, err)
				}
				return
			}
			if want := (agentbus.AgentChain{Hop: at.Hop + 1, MaxHops: at.MaxHops, Final: at.Hop+1 >= at.MaxHops}); next != want {
				t.Fatalf("after %+v comes %+v", at, next)
			}
			limit := rapid.IntRange(0, 8).Draw(t, "limit of the receiver")
			claimed := next
			if rapid.Bool().Draw(t, "lies") {
				claimed = agentbus.AgentChain{Hop: rapid.IntRange(1, 64).Draw(t, "hop"), MaxHops: rapid.IntRange(1, 64).Draw(t, "max"), Final: rapid.Bool().Draw(t, "final")}
			}
			got, err := claimed.After(at)
			if err == nil {
				got, err = got.Bound(limit)
			}
			if err != nil {
				if claimed == next && limit >= next.Hop {
					t.Fatalf("%+v after %+v, with a limit of %d: %v", claimed, at, limit, err)
				}
				return // refused: nobody was called
			}
			most = min(most, limit, claimed.MaxHops)
			if got.Hop <= before || got.Hop > most || got.MaxHops != most || got.Final != (claimed.Final || got.Hop == most) {
				t.Fatalf("%+v claimed after %+v with a limit of %d became %+v", claimed, at, limit, got)
			}
			at, before = got, got.Hop
		}
		t.Fatal("a chain without an end")
	})
}

// FuzzParseAgentChain: what is read is within its bounds, and reads the same
// when it is written again.
func FuzzParseAgentChain(f *testing.F) {
	for _, seed := range []string{`{"hop":1,"max_hops":4,"is_final":false}`, `{"hop":4,"max_hops":4}`, `{"hop":1e400}`, `{"hop":1,"Hop":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := agentbus.ParseAgentChain(raw)
		if err != nil {
			return
		}
		if c.Hop < 1 || c.Hop > c.MaxHops || c.MaxHops > agentbus.MaxChainHops || c.Hop == c.MaxHops && !c.Final {
			t.Fatalf("%s was read as %+v", raw, c)
		}
		again, _ := json.Marshal(c)
		if got, err := agentbus.ParseAgentChain(again); err != nil || got != c {
			t.Fatalf("%s reads as %+v, %v", again, got, err)
		}
	})
}

// K2, K3, K5, K6, K8: the table of the specification. K-6 is a test of the
// server, over real HTTP.
func TestKagentLineage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	for name, k := range map[string]struct {
		parent, root []string // inbound
		session      string
		legacy       bool
		extra        http.Header
		wantParent   string
		wantRoot     string
		code         agentbus.Code
	}{
		"K-1":                         {session: "chat-1", wantParent: "chat-1", wantRoot: "chat-1"},
		"K-2":                         {parent: []string{"chat-1"}, root: []string{"chat-1"}, session: "router-2", legacy: true, wantParent: "router-2", wantRoot: "chat-1"},
		"K-3 on":                      {parent: []string{"legacy-1"}, session: "router-2", legacy: true, wantParent: "router-2", wantRoot: "legacy-1"},
		"K-3 off":                     {parent: []string{"legacy-1"}, session: "router-2", wantParent: "router-2", wantRoot: "router-2"},
		"K-4":                         {},
		"K-4 with a root":             {root: []string{"x"}, legacy: true},
		"K-5":                         {session: "router-2", extra: http.Header{"x-kagent-root-context-id": {"forced"}}, wantParent: "router-2", wantRoot: "forced"},
		"K-7":                         {root: []string{"r"}, session: "s", wantParent: "s", wantRoot: "r"},
		"K-8":                         {root: []string{""}, session: "s", wantParent: "s", wantRoot: "s"},
		"K-9 twice":                   {root: []string{"a", "b"}, session: "s", code: agentbus.CodeDuplicateHeader},
		"K-9 list":                    {root: []string{"a,b"}, session: "s", code: agentbus.CodeDuplicateHeader},
		"K-10 CRLF":                   {root: []string{"a\r\nb"}, session: "s", code: agentbus.CodeInvalidLineage},
		"K-10 257":                    {root: []string{long}, session: "s", code: agentbus.CodeInvalidLineage},
		"K-10 é":                      {root: []string{"é"}, session: "s", code: agentbus.CodeInvalidLineage},
		"K-10 dots":                   {root: []string{"../"}, session: "s", wantParent: "s", wantRoot: "../"},
		"K-12 as on the first call":   {root: []string{"r"}, session: "s", wantParent: "s", wantRoot: "r"},
		"X29 1 MB":                    {root: []string{strings.Repeat("x", 1<<20)}, session: "s", code: agentbus.CodeInvalidLineage},
		"X29 A_b":                     {root: []string{"A_b"}, session: "s", wantParent: "s", wantRoot: "A_b"},
		"K3 session that is too long": {session: long, wantParent: agentbus.SessionID(long), wantRoot: agentbus.SessionID(long)},
	} {
		h := http.Header{}
		for name, values := range map[string][]string{agentbus.ParentContextIDHeader: k.parent, agentbus.RootContextIDHeader: k.root} {
			if values != nil {
				h[http.CanonicalHeaderKey(name)] = values
			}
		}
		l, err := agentbus.ParseLineage(h)
		if agentbus.CodeOf(err) != k.code {
			t.Errorf("%s: %v, want %q", name, err, k.code)
		}
		if err != nil {
			continue
		}
		out := http.Header{}
		l.ParentContext, l.RootContext = l.Contexts(k.session, k.legacy)
		l.SetHeaders(out)
		if dropped := agentbus.Layer(out, k.extra); dropped != nil {
			t.Errorf("%s: %v was dropped", name, dropped)
		}
		got := [2][]string{out[http.CanonicalHeaderKey(agentbus.ParentContextIDHeader)], out[http.CanonicalHeaderKey(agentbus.RootContextIDHeader)]}
		want := [2][]string{one(k.wantParent), one(k.wantRoot)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func one(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// K6: a layer replaces, and nothing replaces the bus's own headers.
func TestK6Layers(t *testing.T) {
	t.Parallel()
	h := http.Header{"X-User-Id": {"a"}, "X-Tangle-Runid": {"r"}, "Traceparent": {traceParent}}
	dropped := agentbus.Layer(h, http.Header{
		"x-user-id": {"b"}, "X-Tangle-Runid": {"forged"}, "x_tangle_runid": {"forged"}, "x-tangle-new": {"1"}, "traceparent": {"x"}, "X-Own": {"1", "2"},
	})
	if diff := cmp.Diff(http.Header{"X-User-Id": {"b"}, "X-Tangle-Runid": {"r"}, "Traceparent": {traceParent}, "X-Own": {"1", "2"}}, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if len(dropped) != 4 {
		t.Errorf("dropped %v", dropped)
	}
}

// K10, X28, X29: what belongs to a conversation is found under the install key by
// payer, agent and root together, each behind its length: a root that was made
// up, one that is written nearly alike and words that run together find nothing.
func TestX28KeysOfAConversation(t *testing.T) {
	t.Parallel()
	seen := map[agentbus.Digest]string{}
	for name, d := range map[string]agentbus.Digest{
		"":                           agentbus.Keyed([]byte("key"), "alice", "critic", "A_b"),
		"X28 of another payer":       agentbus.Keyed([]byte("key"), "mallory", "critic", "A_b"),
		"X28 of another agent":       agentbus.Keyed([]byte("key"), "alice", "writer", "A_b"),
		"X28 under another key":      agentbus.Keyed([]byte("guess"), "alice", "critic", "A_b"),
		"X28 under none":             agentbus.Keyed(nil, "alice", "critic", "A_b"),
		"X29 -":                      agentbus.Keyed([]byte("key"), "alice", "critic", "a-b"),
		"X29 in another case":        agentbus.Keyed([]byte("key"), "alice", "critic", "a_b"),
		"running together":           agentbus.Keyed([]byte("key"), "alicecritic", "A_b"),
		"running together elsewhere": agentbus.Keyed([]byte("key"), "alice", "criticA", "_b"),
		"with one more":              agentbus.Keyed([]byte("key"), "alice", "critic", "A_b", ""),
	} {
		if other, twice := seen[d]; twice {
			t.Errorf("%q and %q have one key", name, other)
		}
		seen[d] = name
	}
}
