package agentbus_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
)

// G20: any field of the key makes another key, and so does more.
func TestTurnKeyHash(t *testing.T) {
	t.Parallel()
	key := agentbus.TurnKey{Payer: "p", Agent: "a", Run: "r", Path: "h", Parent: "q", ID: "t"}
	seen := map[agentbus.Digest]string{}
	for name, d := range map[string]agentbus.Digest{
		"key":                key.Hash(),
		"payer":              agentbus.TurnKey{Payer: "x", Agent: "a", Run: "r", Path: "h", Parent: "q", ID: "t"}.Hash(),
		"agent":              agentbus.TurnKey{Payer: "p", Agent: "x", Run: "r", Path: "h", Parent: "q", ID: "t"}.Hash(),
		"run":                agentbus.TurnKey{Payer: "p", Agent: "a", Run: "x", Path: "h", Parent: "q", ID: "t"}.Hash(),
		"path":               agentbus.TurnKey{Payer: "p", Agent: "a", Run: "r", Path: "x", Parent: "q", ID: "t"}.Hash(),
		"parent":             agentbus.TurnKey{Payer: "p", Agent: "a", Run: "r", Path: "h", Parent: "x", ID: "t"}.Hash(),
		"turn":               agentbus.TurnKey{Payer: "p", Agent: "a", Run: "r", Path: "h", Parent: "q", ID: "x"}.Hash(),
		"more":               key.Hash("x"),
		"empty more":         key.Hash(""),
		"two empty more":     key.Hash("", ""),
		"a turn as more":     agentbus.TurnKey{Payer: "p", Agent: "a", Run: "r", Path: "h", Parent: "q"}.Hash("t"),
		"nothing":            agentbus.TurnKey{}.Hash(),
		"parent ran into id": agentbus.TurnKey{Payer: "p", Agent: "a", Run: "r", Path: "h", Parent: "qt"}.Hash(),
		"long":               agentbus.TurnKey{Payer: agentbus.Payer(strings.Repeat("p", 2000))}.Hash(),
	} {
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s hash alike", name, other)
		}
		seen[d] = name
	}
	sameKey := key
	if again := key.Hash("x"); again != sameKey.Hash("x") {
		t.Error("the hash is not a function of the key")
	}
	const want = "417f986c6ed7e554" // stored in ledgers: it must not change
	if got := key.Hash().String(); got != want {
		t.Errorf("the hash of %+v begins with %s, want %s", key, got, want)
	}
}

// G20: no two different keys run together, wherever one field ends and the next
// begins.
func TestTurnKeysDoNotRunTogether(t *testing.T) {
	t.Parallel()
	// Few letters and the bytes of lengths, so that different keys often have
	// the same bytes one after the other.
	field := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'b', 0, 1, 2, 128}), 0, 3, -1)
	fields := rapid.Custom(func(t *rapid.T) []string { return rapid.SliceOfN(field, 6, 8).Draw(t, "fields") })
	hash := func(f []string) agentbus.Digest {
		k := agentbus.TurnKey{
			Payer: agentbus.Payer(f[0]), Agent: f[1], Run: agentbus.RunID(f[2]), Path: f[3],
			Parent: agentbus.TurnID(f[4]), ID: agentbus.TurnID(f[5]),
		}
		return k.Hash(f[6:]...)
	}
	rapid.Check(t, func(t *rapid.T) {
		a := fields.Draw(t, "a")
		b := fields.Draw(t, "b")
		if rapid.Bool().Draw(t, "shift") { // the same bytes, cut elsewhere
			b = slices.Clone(a)
			i := rapid.IntRange(0, len(b)-2).Draw(t, "at")
			both := b[i] + b[i+1]
			cut := rapid.IntRange(0, len(both)).Draw(t, "cut")
			b[i], b[i+1] = both[:cut], both[cut:]
		}
		if same := slices.Equal(a, b); same != (hash(a) == hash(b)) {
			t.Errorf("%q and %q: equal %t, hashes equal %t", a, b, same, !same)
		}
	})
}

func TestDigestString(t *testing.T) {
	t.Parallel()
	d := agentbus.Digest{0xde, 0xad, 7: 0x01, 8: 0xff}
	if got, want := d.String(), hex.EncodeToString(d[:])[:16]; got != want || got != "dead000000000001" {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A turn on the wire says which, how far and at what price, and keeps its
// digest and the cause of its error to itself.
func TestTurnJSON(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got, err := json.Marshal(agentbus.Turn{
		TurnKey: agentbus.TurnKey{Agent: "critic", Run: "r", ID: "r.t0.critic"}, Execution: "r", Speaker: "critic", Digest: agentbus.Digest{1},
		Epoch: 2, State: agentbus.TurnFailed, Attempts: 3, Cost: 4, Began: began,
		Error: &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "reset", Err: errors.New(canary)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"agent":"critic","run":"r","turn":"r.t0.critic","execution":"r","index":0,"speaker":"critic","epoch":2,"state":"failed",` +
		`"reply":{"text":"","usage":{"input_tokens":0,"output_tokens":0}},"cost_micros":4,"attempts":3,` +
		`"error":{"code":"agent_unavailable","message":"reset"},"began":"2026-01-02T03:04:05Z"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A digest is written with all its digits, and nothing else is read as one.
func TestDigestText(t *testing.T) {
	t.Parallel()
	want := agentbus.TurnKey{Payer: "p"}.Hash()
	text, err := json.Marshal(want)
	if err != nil || string(text) != `"`+hex.EncodeToString(want[:])+`"` {
		t.Fatalf("%s, %v", text, err)
	}
	var got agentbus.Digest
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("read back: %x, %v", got, err)
	}
	for _, bad := range []string{`""`, `"12"`, `"` + strings.Repeat("x", 64) + `"`, `"` + strings.Repeat("0", 66) + `"`, "7"} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil || got != want {
			t.Errorf("%s is read as %x", bad, got)
		}
	}
}
