package agentbus_test

import (
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// P2, G34: a traceparent is read, and a child of it is another span of the same
// trace with the same flags.
func TestSpanContext(t *testing.T) {
	t.Parallel()
	const ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	for value, want := range map[string]string{
		"00-" + ids + "-01":        "00-" + ids + "-01",
		"00-" + ids + "-00":        "00-" + ids + "-00",
		"00-" + ids + "-ff":        "00-" + ids + "-03", // flags we do not know are not carried
		"cc-" + ids + "-03-future": "00-" + ids + "-03", // a version to come: what we know of it
		"":                         "",
		"00-" + ids:                "",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": "",
	} {
		c, ok := agentbus.ParseTraceParent(value)
		if c.String() != want || ok != (want != "") || c.IsZero() != (want == "") {
			t.Errorf("%q is read as %q, %t; want %q", value, c, ok, want)
		}
		if want == "" {
			continue
		}
		child := c.Child()
		if child.Trace != c.Trace || child.Flags != c.Flags || child.Span == c.Span || child.Span == c.Child().Span {
			t.Errorf("a child of %q is %q", c, child)
		}
		if !c.WithSampled(true).Sampled() || c.WithSampled(false).Sampled() {
			t.Errorf("%q cannot be sampled or not", c)
		}
	}
	a, b := agentbus.NewTrace(), agentbus.NewTrace()
	if a.Trace == b.Trace || a.Span == b.Span || a.Sampled() {
		t.Errorf("new traces %q, %q", a, b)
	}
	if _, ok := agentbus.ParseTraceParent(a.String()); !ok {
		t.Errorf("%q is not read again", a)
	}
}

// The parser takes whatever a wire brings, and what it takes it writes as it was.
func FuzzParseTraceParent(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x")
	f.Add("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01")
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := agentbus.ParseTraceParent(s)
		if out := c.String(); ok && !strings.HasPrefix(s[3:], out[3:53]) || !ok && out != "" {
			t.Errorf("%q is read as %q, %t", s, out, ok)
		}
	})
}
