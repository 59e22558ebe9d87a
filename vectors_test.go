package agentbus_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

// The vectors are figures of the public reference behaviour. Where a rule of
// ours differs from it on purpose, the table of that test names the rule.
type vectors struct {
	SlugifySpeaker []struct{ Speaker, Slug string }
	TurnID         []struct {
		RunID   agentbus.RunID
		Index   json.RawMessage // not always a number
		Speaker agentbus.Speaker
		TurnID  agentbus.TurnID
	}
	ReadDepth []struct {
		Raw   *string
		OK    *json.Number
		Error *struct{ Message string }
	}
	ReadDepthLookups []struct {
		Headers map[string]json.RawMessage // a string or a list
		OK      *int
		Error   *struct{ Message string }
	}
	IsDepthExceeded []struct {
		Depth, Max json.RawMessage // not always numbers
		Exceeded   bool
	}
	BuildForwardHeaders []struct {
		Input struct {
			InboundDepth           json.Number
			ForwardedAuthorization string
			RunID                  agentbus.RunID
			TurnID, ParentTurnID   agentbus.TurnID
			Speaker                agentbus.Speaker
		}
		Out map[string]string
	}
	NestedDepth []struct{ InboundDepthHeader, InnerOutboundDepth string }
	Constants   struct {
		ForwardHeaders  map[string]string `json:"FORWARD_HEADERS"`
		DefaultMaxDepth int               `json:"DEFAULT_MAX_DEPTH"`
	}
	DescribeHalt []struct {
		Halt struct {
			Kind, Reason, Participant, Message string
			Turns                              int
			SpentCents, CapCents               int64
		}
		Text string
	}
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/bus-protocol.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// P14: every name of the reference has the reference's slug. A lone surrogate,
// which no Go string can hold, arrives as U+FFFD and becomes a dash alike.
func TestVectorsSlug(t *testing.T) {
	t.Parallel()
	rows := readVectors(t).SlugifySpeaker
	if len(rows) != 50 {
		t.Errorf("%d vectors, want 50", len(rows))
	}
	for _, row := range rows {
		if got := agentbus.Speaker(row.Speaker).Slug(); got != row.Slug {
			t.Errorf("Slug(%q) = %q, want %q", row.Speaker, got, row.Slug)
		}
	}
}

// P16: the turn id is a pure function of run, index and speaker.
func TestVectorsTurnID(t *testing.T) {
	t.Parallel()
	tested := 0
	for _, row := range readVectors(t).TurnID {
		index, err := strconv.Atoi(string(row.Index))
		if err != nil { // 1.5, 1e21 and NaN are no int: the type refuses them
			continue
		}
		tested++
		if got := row.RunID.Turn(index, row.Speaker); got != row.TurnID {
			t.Errorf("%q.Turn(%d, %q) = %q, want %q", row.RunID, index, row.Speaker, got, row.TurnID)
		}
	}
	if tested != 5 {
		t.Errorf("%d vectors tested, want 5", tested)
	}
}

// P3: the reference reads whatever JavaScript's Number takes for an integer;
// we read digits. Each value it accepts and we refuse is named.
func TestVectorsReadDepth(t *testing.T) {
	t.Parallel()
	refused := map[string]string{
		"4.0": "P3: digits only", ".0": "P3: digits only", "1e0": "P3: no exponent", "1e21": "P3: no exponent",
		"0X1f": "P3: no hexadecimal", "0b11": "P3: no binary",
		"3\n": "P3: spaces and tabs are trimmed, nothing else", "\u00a05": "P3: spaces and tabs are trimmed, nothing else",
		"9007199254740991": "P3: at most 9 digits", "9007199254740993": "P3: at most 9 digits", "18446744073709551616": "P3: at most 9 digits",
	}
	for _, row := range readVectors(t).ReadDepth {
		raw := ""
		if row.Raw != nil && *row.Raw != "(undefined)" {
			raw = *row.Raw
		}
		got, err := agentbus.ParseDepth(raw)
		rule, differs := refused[raw]
		delete(refused, raw)
		if differs || row.Error != nil {
			if agentbus.CodeOf(err) != agentbus.CodeInvalidDepth {
				t.Errorf("ParseDepth(%q) = %d, %v, want invalid_depth %s", raw, got, err, rule)
			}
			continue
		}
		if want := row.OK.String(); err != nil || strconv.Itoa(got) != want {
			t.Errorf("ParseDepth(%q) = %d, %v, want %s", raw, got, err, want)
		}
	}
	for raw := range refused {
		t.Errorf("the table names %q, which is no vector", raw)
	}
}

// P1, P2: the reference takes the first of several values; we refuse them,
// before their grammar is looked at.
func TestVectorsReadDepthLookups(t *testing.T) {
	t.Parallel()
	duplicates := 0
	for _, row := range readVectors(t).ReadDepthLookups {
		h, values := http.Header{}, 0
		for name, raw := range row.Headers {
			var list []string
			if json.Unmarshal(raw, &list) != nil {
				list = make([]string, 1)
				if err := json.Unmarshal(raw, &list[0]); err != nil {
					t.Fatal(err)
				}
			}
			h[name] = list
			values += len(list)
		}
		l, err := agentbus.ParseLineage(h)
		if values > 1 { // P2
			duplicates++
			if agentbus.CodeOf(err) != agentbus.CodeDuplicateHeader {
				t.Errorf("ParseLineage(%v) = depth %d, %v, want duplicate_header", h, l.Depth, err)
			}
			continue
		}
		if row.OK == nil || err != nil || l.Depth != *row.OK {
			t.Errorf("ParseLineage(%v) = depth %d, %v, want %v", h, l.Depth, err, row.OK)
		}
	}
	if duplicates != 4 {
		t.Errorf("%d vectors have two values, want 4", duplicates)
	}
}

// P10: a depth at the limit is refused.
func TestVectorsIsDepthExceeded(t *testing.T) {
	t.Parallel()
	tested := 0
	for _, row := range readVectors(t).IsDepthExceeded {
		limit, err := strconv.Atoi(string(row.Max))
		if string(row.Max) == `"(default 4)"` {
			limit, err = agentbus.DefaultMaxDepth, nil
		}
		depth, err2 := strconv.Atoi(string(row.Depth))
		if errors.Join(err, err2) != nil { // NaN and Infinity are no int: the reference lets them pass, the type refuses them
			continue
		}
		tested++
		if err := (agentbus.Lineage{Depth: depth}).CheckDepth(limit); (err != nil) != row.Exceeded {
			t.Errorf("CheckDepth(%d) at depth %d: %v, want refused = %t", limit, depth, err, row.Exceeded)
		}
	}
	if tested != 10 {
		t.Errorf("%d vectors tested, want 10", tested)
	}
}

// P8: what the reference builds, Next and SetHeaders emit.
func TestVectorsBuildForwardHeaders(t *testing.T) {
	t.Parallel()
	differs := map[string]map[string]string{ // by inbound depth or speaker
		"-5":               {agentbus.HeaderForwardedDepth: "1"},         // P3: no depth below 0 is ever written
		"9007199254740992": {agentbus.HeaderForwardedDepth: "999999999"}, // P8: it stays at what P3 can write
		"1e+21":            {agentbus.HeaderForwardedDepth: "999999999"}, // P8; the nearest int there is
		"研究者 🤖":            {agentbus.HeaderSpeaker: "anon"},             // P18: the reference's own client throws on it
	}
	for _, row := range readVectors(t).BuildForwardHeaders {
		depth, err := row.Input.InboundDepth.Int64()
		if err != nil {
			depth = math.MaxInt64
		}
		in := agentbus.Lineage{
			Run: row.Input.RunID, Turn: row.Input.ParentTurnID,
			Depth: int(depth), Auth: agentbus.NewCredential(row.Input.ForwardedAuthorization),
		}
		out, err := in.Next(row.Input.TurnID, row.Input.Speaker)
		if err != nil {
			t.Errorf("Next: %v", err)
			continue
		}
		want := row.Out
		for _, key := range []string{row.Input.InboundDepth.String(), string(row.Input.Speaker)} {
			maps.Copy(want, differs[key])
		}
		if out.Path != "" {
			want[agentbus.HeaderPath] = out.Path // additive (P8)
		}
		if diff := cmp.Diff(want, wire(out)); diff != "" {
			t.Errorf("depth %s, speaker %q (-want +got):\n%s", row.Input.InboundDepth, row.Input.Speaker, diff)
		}
	}
}

// P3: a nested run does not take a bad inbound depth for 0, as the reference does.
func TestVectorsNestedDepth(t *testing.T) {
	t.Parallel()
	for _, row := range readVectors(t).NestedDepth {
		h := http.Header{"X-Tangle-Runid": {"r"}, "X-Tangle-Turnid": {"r.t0.x"}}
		if row.InboundDepthHeader != "(absent)" {
			h.Set(agentbus.HeaderForwardedDepth, row.InboundDepthHeader)
		}
		in, err := agentbus.ParseLineage(h)
		if row.InboundDepthHeader == "banana" || row.InboundDepthHeader == "-1" { // P3
			if agentbus.CodeOf(err) != agentbus.CodeInvalidDepth {
				t.Errorf("depth %q: %v, want invalid_depth", row.InboundDepthHeader, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("depth %q: %v", row.InboundDepthHeader, err)
			continue
		}
		out, err := in.Next("r.t0.inner", "inner")
		if got := strconv.Itoa(out.Depth); err != nil || got != row.InnerOutboundDepth {
			t.Errorf("depth %q: the inner call carries %s, %v, want %s", row.InboundDepthHeader, got, err, row.InnerOutboundDepth)
		}
	}
}

// P1, P10: names and default limit are those of the reference.
func TestVectorsConstants(t *testing.T) {
	t.Parallel()
	got := map[string]string{
		"authorization": agentbus.HeaderForwardedAuthorization, "depth": agentbus.HeaderForwardedDepth,
		"runId": agentbus.HeaderRunID, "turnId": agentbus.HeaderTurnID, "parentTurnId": agentbus.HeaderParentTurnID,
		"speaker": agentbus.HeaderSpeaker,
	}
	want := readVectors(t).Constants
	if diff := cmp.Diff(want.ForwardHeaders, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if agentbus.DefaultMaxDepth != want.DefaultMaxDepth {
		t.Errorf("DefaultMaxDepth = %d, want %d", agentbus.DefaultMaxDepth, want.DefaultMaxDepth)
	}
}

// R8: a halt reads as in the reference, but for a budget: it is named budget
// here, and counted in dollars, not in cents.
func TestVectorsDescribeHalt(t *testing.T) {
	t.Parallel()
	const centsText, dollarsText = "max_credits (15/12¢)", "budget ($0.150000 of $0.120000)"
	for _, row := range readVectors(t).DescribeHalt {
		h := agentbus.Halt{
			Kind: agentbus.HaltKind(row.Halt.Kind), Turns: row.Halt.Turns, Reason: row.Halt.Reason, Participant: row.Halt.Participant,
			Spent: agentbus.Micros(row.Halt.SpentCents) * 10_000, Limit: agentbus.Micros(row.Halt.CapCents) * 10_000,
		}
		if h.Kind == "max_credits" {
			h.Kind = agentbus.HaltBudget
		}
		if row.Halt.Message != "" {
			h.Error = &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: row.Halt.Message}
		}
		if got, want := h.String(), strings.Replace(row.Text, centsText, dollarsText, 1); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// wire returns what l writes into a request, by lower-case name.
func wire(l agentbus.Lineage) map[string]string {
	h := http.Header{}
	l.SetHeaders(h)
	out := make(map[string]string, len(h))
	for name, values := range h {
		out[strings.ToLower(name)] = strings.Join(values, " and ")
	}
	return out
}
