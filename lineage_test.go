package agentbus_test

import (
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

// sameCredential compares by value; a difference prints as [redacted].
var sameCredential = cmp.Comparer(func(a, b agentbus.Credential) bool { return a.Reveal() == b.Reveal() })

const (
	traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	id512       = "i23456789012345678901234567890123456789012345678901234567890abcd" // 64 bytes; repeated eight times below
)

// whole has every header of the protocol, each once.
func whole() http.Header {
	return http.Header{
		"X-Tangle-Forwarded-Authorization": {"Bearer sk-user"},
		"X-Tangle-Forwarded-Depth":         {"2"},
		"X-Tangle-Runid":                   {"conv_abc"},
		"X-Tangle-Turnid":                  {"conv_abc.t0.critic"},
		"X-Tangle-Parent-Turnid":           {"conv_abc.t0.researcher"},
		"X-Tangle-Speaker":                 {"The Critic"},
		"X-Tangle-Protocol-Version":        {"0"},
		"X-Agentbus-Path":                  {"0123456789abcdef"},
		"X-Kagent-Root-Context-Id":         {"ctx-root"},
		"X-Kagent-Parent-Context-Id":       {"ctx-parent"},
		"Traceparent":                      {traceParent},
		"Tracestate":                       {"a=1,b=2"},
	}
}

func wholeLineage() agentbus.Lineage {
	return agentbus.Lineage{
		Run: "conv_abc", Turn: "conv_abc.t0.critic", Parent: "conv_abc.t0.researcher", Speaker: "The Critic", Depth: 2,
		Path: "0123456789abcdef", RootContext: "ctx-root", ParentContext: "ctx-parent",
		TraceParent: traceParent, TraceState: "a=1,b=2", Auth: agentbus.NewCredential("Bearer sk-user"),
	}
}

// P1: names are read in any case, whatever spelling the map holds.
func TestParseLineageNames(t *testing.T) {
	t.Parallel()
	for name, spell := range map[string]func(string) string{
		"canonical": func(s string) string { return s }, "lower": strings.ToLower, "upper": strings.ToUpper,
	} {
		h := http.Header{}
		for k, v := range whole() {
			h[spell(k)] = v
		}
		got, err := agentbus.ParseLineage(h)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(wholeLineage(), got, sameCredential); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseLineage(t *testing.T) {
	t.Parallel()
	run := func(more http.Header) http.Header {
		h := http.Header{"X-Tangle-Runid": {"r"}}
		maps.Copy(h, more)
		return h
	}
	longID := strings.Repeat(id512, 8)
	for _, tt := range []struct {
		name string
		in   http.Header
		want agentbus.Lineage
		code agentbus.Code
		rule string
	}{
		{name: "nothing", in: http.Header{}},
		{name: "nil", in: nil},
		{name: "other headers", in: http.Header{"X-Forwarded-Depth": {"9"}, "Authorization": {"Bearer x"}, "Host": {"a", "b"}}},
		{name: "P7 depth stays as claimed without a run", in: http.Header{"X-Tangle-Forwarded-Depth": {"3"}}, want: agentbus.Lineage{Depth: 3}},
		{name: "P7 a run without a turn is kept", in: run(nil), want: agentbus.Lineage{Run: "r"}},
		{name: "P7 turn without run", in: http.Header{"X-Tangle-Turnid": {"r.t0.x"}}, code: agentbus.CodeInvalidLineage, rule: "P7"},
		{name: "P7 parent without run", in: http.Header{"X-Tangle-Parent-Turnid": {"r.t0.x"}}, code: agentbus.CodeInvalidLineage, rule: "P7"},

		{name: "P2 twice", in: http.Header{"X-Tangle-Runid": {"a", "a"}}, code: agentbus.CodeDuplicateHeader, rule: "P2"},
		{name: "P2 in two spellings", in: http.Header{"X-Tangle-Runid": {"a"}, "x-tangle-runid": {"a"}}, code: agentbus.CodeDuplicateHeader, rule: "P2"},
		{name: "P2 list", in: run(http.Header{"X-Tangle-Forwarded-Depth": {"2, 99"}}), code: agentbus.CodeDuplicateHeader, rule: "P2"},
		{name: "P2 before grammar", in: http.Header{"X-Tangle-Forwarded-Depth": {"banana", "1"}}, code: agentbus.CodeDuplicateHeader, rule: "P2"},
		{name: "P2 before P25", in: http.Header{"X-Tangle-Protocol-Version": {"1"}, "X-Tangle-Runid": {"a,b"}}, code: agentbus.CodeDuplicateHeader, rule: "P2"},
		{name: "P2 credential twice", in: http.Header{"X-Tangle-Forwarded-Authorization": {"Bearer a", "Bearer b"}}, code: agentbus.CodeDuplicateHeader, rule: "P2"},
		{name: "P2 speaker list", in: run(http.Header{"X-Tangle-Speaker": {"a, b"}}), code: agentbus.CodeDuplicateHeader, rule: "P2"},
		{name: "P2 K5 context twice", in: run(http.Header{"X-Kagent-Root-Context-Id": {"a", "b"}}), code: agentbus.CodeDuplicateHeader, rule: "P2"},
		{name: "P2 two traceparents are dropped", in: run(http.Header{"Traceparent": {traceParent, traceParent}, "Tracestate": {"a=1"}}), want: agentbus.Lineage{Run: "r"}},
		{name: "P2 two spellings of traceparent are dropped", in: run(http.Header{"Traceparent": {traceParent}, "traceparent": {traceParent}}), want: agentbus.Lineage{Run: "r"}},
		{name: "P2 two tracestates are one list", in: run(http.Header{"Traceparent": {traceParent}, "Tracestate": {"a=1", "b=2"}}), want: agentbus.Lineage{Run: "r", TraceParent: traceParent, TraceState: "a=1,b=2"}},
		{name: "P2 a long tracestate goes alone", in: run(http.Header{"Traceparent": {traceParent}, "Tracestate": {strings.Repeat("a", 513)}}), want: agentbus.Lineage{Run: "r", TraceParent: traceParent}},
		{name: "P2 a tracestate without its traceparent goes", in: run(http.Header{"Tracestate": {"a=1"}}), want: agentbus.Lineage{Run: "r"}},
		{name: "an empty list is absent", in: run(http.Header{"X-Tangle-Turnid": {}}), want: agentbus.Lineage{Run: "r"}},

		{name: "P3 depth", in: http.Header{"X-Tangle-Forwarded-Depth": {"-1"}}, code: agentbus.CodeInvalidDepth, rule: "P3"},
		{name: "P3 empty", in: http.Header{"X-Tangle-Forwarded-Depth": {""}}},

		{name: "P4 longest id", in: http.Header{"X-Tangle-Runid": {longID}}, want: agentbus.Lineage{Run: agentbus.RunID(longID)}},
		{name: "P4 too long", in: http.Header{"X-Tangle-Runid": {longID + "x"}}, code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 all of it", in: http.Header{"X-Tangle-Runid": {"!#~@/.."}}, want: agentbus.Lineage{Run: "!#~@/.."}},
		{name: "P4 empty run", in: http.Header{"X-Tangle-Runid": {""}}, code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 empty turn", in: run(http.Header{"X-Tangle-Turnid": {" "}}), code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 space", in: http.Header{"X-Tangle-Runid": {"a b"}}, code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 quote", in: run(http.Header{"X-Tangle-Turnid": {`a"b`}}), code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 control", in: run(http.Header{"X-Tangle-Parent-Turnid": {"a\x00b"}}), code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 line break", in: http.Header{"X-Tangle-Runid": {"a\r\nb"}}, code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 not ASCII", in: http.Header{"X-Tangle-Runid": {"rün"}}, code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 right to left", in: http.Header{"X-Tangle-Runid": {"a\u202eb"}}, code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 long speaker", in: run(http.Header{"X-Tangle-Speaker": {strings.Repeat("x", 513)}}), code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "long credential", in: run(http.Header{"X-Tangle-Forwarded-Authorization": {strings.Repeat("x", 16<<10+1)}}), code: agentbus.CodeInvalidLineage, rule: "P4"},
		{name: "P4 surrounding blanks are not the id's", in: http.Header{"X-Tangle-Runid": {" \tr\t "}}, want: agentbus.Lineage{Run: "r"}},

		{name: "P8 path", in: run(http.Header{"X-Agentbus-Path": {"0123456789ABCDEF"}}), code: agentbus.CodeInvalidLineage, rule: "P8"},
		{name: "P8 short path", in: run(http.Header{"X-Agentbus-Path": {"0123"}}), code: agentbus.CodeInvalidLineage, rule: "P8"},
		{name: "P8 empty path", in: run(http.Header{"X-Agentbus-Path": {""}}), want: agentbus.Lineage{Run: "r"}},

		{name: "K5 context", in: run(http.Header{"X-Kagent-Root-Context-Id": {strings.Repeat("x", 257)}}), code: agentbus.CodeInvalidLineage, rule: "K5"},
		{name: "K5 context with space", in: run(http.Header{"X-Kagent-Parent-Context-Id": {"a b"}}), code: agentbus.CodeInvalidLineage, rule: "K5"},
		{name: "K5 empty is absent", in: run(http.Header{"X-Kagent-Parent-Context-Id": {""}}), want: agentbus.Lineage{Run: "r"}},

		{name: "P25 version 0", in: run(http.Header{"X-Tangle-Protocol-Version": {" 0 "}}), want: agentbus.Lineage{Run: "r"}},
		{name: "P25 version 1", in: run(http.Header{"X-Tangle-Protocol-Version": {"1"}}), code: agentbus.CodeUnsupportedVersion, rule: "P25"},
		{name: "P25 version 00", in: run(http.Header{"X-Tangle-Protocol-Version": {"00"}}), code: agentbus.CodeUnsupportedVersion, rule: "P25"},
		{name: "P25 no version in it", in: run(http.Header{"X-Tangle-Protocol-Version": {""}}), code: agentbus.CodeUnsupportedVersion, rule: "P25"},

		{name: "P5 twins are not read", in: run(http.Header{"X_tangle_forwarded_depth": {"7"}, "x-tangle_runid": {"a,b", "c"}}), want: agentbus.Lineage{Run: "r"}},

		{name: "P6 connection", in: run(http.Header{"Connection": {"keep-alive, X-Tangle-Forwarded-Depth"}}), code: agentbus.CodeInvalidLineage, rule: "P6"},
		{name: "P6 connection twin", in: run(http.Header{"Connection": {"x_tangle_runid"}}), code: agentbus.CodeInvalidLineage, rule: "P6"},
		{name: "P6 second connection", in: run(http.Header{"connection": {"close", "upgrade,\ttraceparent "}}), code: agentbus.CodeInvalidLineage, rule: "P6"},
		{name: "P6 other connection", in: run(http.Header{"Connection": {"keep-alive, X-Tangle"}}), want: agentbus.Lineage{Run: "r"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := agentbus.ParseLineage(tt.in)
			if agentbus.CodeOf(err) != tt.code {
				t.Fatalf("error %v, want code %q", err, tt.code)
			}
			if err != nil {
				if e := agentbus.AsError(err); e.Explain == nil || e.Explain.Rule != tt.rule || e.Explain.Next == "" {
					t.Errorf("explained by %+v, want rule %s and what to do next", e.Explain, tt.rule)
				}
			}
			if diff := cmp.Diff(tt.want, got, sameCredential); diff != "" {
				t.Errorf("lineage (-want +got):\n%s", diff)
			}
		})
	}
}

// P25: the refusal says what is supported.
func TestParseLineageSupportedVersions(t *testing.T) {
	t.Parallel()
	_, err := agentbus.ParseLineage(http.Header{"X-Tangle-Protocol-Version": {"9 @critic"}})
	want := &agentbus.Explain{
		Rule: "P25", Observed: "9 ?critic", Supported: []string{"0"},
		Next: "leave x-tangle-protocol-version out, or send 0",
	}
	if diff := cmp.Diff(want, agentbus.AsError(err).Explain); diff != "" {
		t.Errorf("explain (-want +got):\n%s", diff)
	}
}

// P2: trace context follows W3C: malformed is dropped, never refused.
func TestParseLineageTraceParent(t *testing.T) {
	t.Parallel()
	const ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	for value, kept := range map[string]bool{
		"00-" + ids + "-01":      true,
		"00-" + ids + "-00":      true,
		"cc-" + ids + "-01":      true, // a version to come
		"cc-" + ids + "-01-what": true, // may say more
		"cc-" + ids + "-01.what": false,
		"00-" + ids + "-01-what": false,
		"ff-" + ids + "-01":      false,
		"00-" + ids + "-0":       false,
		"00-" + ids + "-0g":      false,
		"00_" + ids + "-01":      false,
		"00-" + ids + "_01":      false,
		"":                       false,
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01":      false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01":      false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01":      false,
		"cc-" + ids + "-01-" + strings.Repeat("x", 600):                false,
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01":      false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, 00-": false,
	} {
		l, err := agentbus.ParseLineage(http.Header{"Traceparent": {value}, "Tracestate": {"a=1"}})
		want, wantState := "", ""
		if kept {
			want, wantState = value, "a=1"
		}
		if err != nil || l.TraceParent != want || l.TraceState != wantState {
			t.Errorf("traceparent %q: %q with %q, %v; want kept = %t", value, l.TraceParent, l.TraceState, err, kept)
		}
	}
}

// P5: underscore twins are told from the headers themselves.
func TestTwins(t *testing.T) {
	t.Parallel()
	h := whole()
	for _, name := range []string{"x_tangle_forwarded_depth", "X-Tangle_runid", "X_AGENTBUS_PATH", "x_other"} {
		h[name] = []string{"1"}
	}
	want := []string{"X-Tangle_runid", "X_AGENTBUS_PATH", "x_tangle_forwarded_depth"}
	if diff := cmp.Diff(want, agentbus.Twins(h)); diff != "" {
		t.Errorf("twins (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{
		"x-tangle-runid": true, "X-TANGLE-RUNID": true, "x_tangle_runid": true, "TraceParent": true, "tracestate": true,
		"x-kagent-root-context-id": true, "x-tangle-forwarded-authorization": true, "X-Tangle_Protocol-Version": true,
		"authorization": false, "x-tangle": false, "": false, "\tx-tangle-runid": false, "y-tangle-runid": false,
		"x-tangle-forwarded-authorization2": false, "trace_": false, "trace-parent": false, "x-tangle-runi\u212a": false,
	} {
		if got := agentbus.IsProtocolHeader(name); got != want {
			t.Errorf("IsProtocolHeader(%q) = %t, want %t", name, got, want)
		}
	}
}

// P5, P6: what goes out is the parsed lineage and nothing else of the protocol.
func TestLineageSetHeaders(t *testing.T) {
	t.Parallel()
	h := http.Header{
		"Accept": {"*/*"}, "x-tangle-runid": {"forged"}, "X_tangle_forwarded_depth": {"0"}, "X-TANGLE-SPEAKER": {"a", "b"},
		"X-Tangle-Protocol-Version": {"0"}, "traceparent": {"?"},
	}
	wholeLineage().SetHeaders(h)
	want := whole()
	want["Accept"] = []string{"*/*"}
	delete(want, "X-Tangle-Protocol-Version") // version 0 has no header
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}

	h = whole()
	agentbus.Lineage{}.SetHeaders(h)
	if diff := cmp.Diff(http.Header{"X-Tangle-Forwarded-Depth": {"0"}}, h); diff != "" {
		t.Errorf("headers of the zero lineage (-want +got):\n%s", diff)
	}
}

// P22: an agent-owned call omits the credential; depth, run and parent travel.
func TestLineageSetHeadersWithoutCredential(t *testing.T) {
	t.Parallel()
	l := wholeLineage()
	l.Auth = agentbus.Credential{}
	want := wire(wholeLineage())
	delete(want, agentbus.HeaderForwardedAuthorization)
	if diff := cmp.Diff(want, wire(l)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// P3: nothing but 1 to 9 digits is a depth.
func TestParseDepth(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{"": 0, " \t ": 0, "0": 0, "4": 4, " \t3\t": 3, "007": 7, "000000004": 4, "999999999": 999_999_999} {
		if got, err := agentbus.ParseDepth(s); err != nil || got != want {
			t.Errorf("ParseDepth(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{
		"-1", "+5", "1e3", "0x10", "1.0", "2, 99", "18446744073709551616", "٣", "３", "1 2", "\u00a05", "3\n", "\v3", "0000000004",
		"1000000000", "--1", "NaN", "true", "1_0", "\x00", "4\x00", strings.Repeat("9", 1000), "\xff",
	} {
		got, err := agentbus.ParseDepth(s)
		e := agentbus.AsError(err)
		if got != 0 || e == nil || e.Code != agentbus.CodeInvalidDepth || e.Explain.Rule != "P3" {
			t.Errorf("ParseDepth(%q) = %d, %v, want invalid_depth by P3", s, got, err)
			continue
		}
		if observed, _ := e.Explain.Observed.(string); len(observed) > 20 {
			t.Errorf("ParseDepth(%d bytes) says back %d of them", len(s), len(observed))
		}
	}
	// P19: a credential in the wrong header is not said back.
	_, err := agentbus.ParseDepth("Bearer sk-canary-0123456789")
	if e := agentbus.AsError(err); e.Explain.Observed != "27 bytes" {
		t.Errorf("a credential as a depth: %+v", e.Explain)
	}
}

// P3: FuzzParseDepth asks a second opinion.
func FuzzParseDepth(f *testing.F) {
	for _, s := range []string{"", "0", "4", " 3 ", "-1", "+5", "1e3", "0x10", "1.0", "2, 99", "18446744073709551616", "٣", "000000000", "0000000000"} {
		f.Add(s)
	}
	grammar := regexp.MustCompile(`^[ \t]*([0-9]{0,9})[ \t]*$`)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := agentbus.ParseDepth(s)
		m := grammar.FindStringSubmatch(s)
		if (m == nil) != (err != nil) {
			t.Fatalf("ParseDepth(%q) = %d, %v", s, got, err)
		}
		if m == nil {
			return
		}
		if want, _ := strconv.Atoi(m[1]); got != want { // "" is 0
			t.Errorf("ParseDepth(%q) = %d, want %d", s, got, want)
		}
	})
}

// FuzzParseLineage reads header lines. What is accepted goes out and comes in
// again as it was, but for a speaker that no header can hold (P18), and never
// at a lower depth.
func FuzzParseLineage(f *testing.F) {
	f.Add("x-tangle-runid: conv_abc\nx-tangle-turnid: conv_abc.t0.critic\nx-tangle-forwarded-depth: 2\nx-tangle-speaker: The Critic")
	f.Add("X-Tangle-RunId: r\nx_tangle_runid: s\nConnection: close, x-tangle-runid")
	f.Add("x-tangle-runid: r\nx-tangle-speaker: 研究者\nx-tangle-forwarded-authorization: Bearer sk\nx-agentbus-path: 0123456789abcdef")
	f.Add("traceparent: " + traceParent + "\ntracestate: a=1\ntracestate: b=2\nx-tangle-protocol-version: 0")
	f.Add("x-tangle-forwarded-depth: 999999999\nx-kagent-root-context-id: c\nx-kagent-parent-context-id: d")
	f.Add("x-tangle-forwarded-depth: 1\nX-TANGLE-FORWARDED-DEPTH: 7")
	f.Fuzz(func(t *testing.T, lines string) {
		h := http.Header{}
		for line := range strings.SplitSeq(lines, "\n") {
			name, value, _ := strings.Cut(line, ":")
			h[name] = append(h[name], strings.TrimPrefix(value, " "))
		}
		l, err := agentbus.ParseLineage(h)
		if err != nil {
			if code := agentbus.CodeOf(err); code.Status() != http.StatusBadRequest || !cmp.Equal(l, agentbus.Lineage{}, sameCredential) {
				t.Fatalf("refused with %q and %+v", code, l)
			}
			return
		}
		again := http.Header{}
		l.SetHeaders(again)
		got, err := agentbus.ParseLineage(again)
		if err != nil {
			t.Fatalf("%q was accepted, and refused when it was sent on: %v", lines, err)
		}
		want := l
		want.Speaker = agentbus.Speaker(l.Speaker.Wire())
		if diff := cmp.Diff(want, got, sameCredential); diff != "" {
			t.Errorf("one hop on (-want +got):\n%s", diff)
		}
		if next := l.Forward(); next.Depth < l.Depth || next.Depth == l.Depth && l.Depth != 999_999_999 {
			t.Errorf("depth goes from %d to %d", l.Depth, next.Depth)
		}
	})
}

func BenchmarkParseLineage(b *testing.B) {
	h := whole()
	for _, name := range []string{"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent", "X-Forwarded-For"} {
		h[name] = []string{"something"}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := agentbus.ParseLineage(h); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLineageSetHeaders(b *testing.B) {
	l, h := wholeLineage(), http.Header{}
	b.ReportAllocs()
	for b.Loop() {
		l.SetHeaders(h)
	}
}
