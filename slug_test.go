package agentbus_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// P15 rests on this: names that differ and slugs that do not.
func TestSlugsCanCoincide(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]agentbus.Speaker{
		{"研究者", "批評家"}, {"A B", "a-b"}, {"café", "cafe\u0301"}, {"ﬁnance", "finance"}, {"a.b", "a:b"},
	} {
		if a, b := names[0].Slug(), names[1].Slug(); a != b {
			t.Errorf("Slug(%q) = %q and Slug(%q) = %q, want one", names[0], a, names[1], b)
		}
	}
}

// P14: the alphabet is [A-Za-z0-9_-], to its ends and no further.
func TestSlugAlphabet(t *testing.T) {
	t.Parallel()
	var kept strings.Builder
	for c := range byte(0x80) {
		if slug := agentbus.Speaker([]byte{c}).Slug(); slug != "anon" {
			kept.WriteString(slug)
		}
	}
	if want := "0123456789abcdefghijklmnopqrstuvwxyz_abcdefghijklmnopqrstuvwxyz"; kept.String() != want {
		t.Errorf("kept %s, want %s", kept.String(), want)
	}
	if got := agentbus.Speaker("-a--B-_-9-").Slug(); got != "a-b-_-9" {
		t.Errorf("got %s", got)
	}
}

// P14: what is not valid UTF-8 is outside the alphabet.
func TestSlugOfInvalidUTF8(t *testing.T) {
	t.Parallel()
	for name, want := range map[agentbus.Speaker]string{
		"x\xed\xb0\x80y": "x-y", // a lone surrogate in WTF-8
		"x\xffy":         "x-y",
		"\xff\xfe":       "anon",
		"caf\xc3":        "caf",
	} {
		if got := name.Slug(); got != want {
			t.Errorf("Slug(%q) = %q, want %q", name, got, want)
		}
	}
}

// P18: a speaker goes on the wire raw where it can, else as its slug.
func TestSpeakerWire(t *testing.T) {
	t.Parallel()
	long := agentbus.Speaker(strings.Repeat("x", 513))
	for _, tt := range []struct{ name, want agentbus.Speaker }{
		{"researcher", "researcher"},
		{"GPT-5 Codex", "GPT-5 Codex"},
		{"a.b:c/d@e", "a.b:c/d@e"},
		{"~!#$%^&*()", "~!#$%^&*()"},
		{"", ""},
		{"a,b", "a-b"},
		{`say "hi"`, "say-hi"},
		{" a", "a"},
		{"a\t", "a"},
		{"a\tb", "a-b"},
		{"a\r\nx-tangle-forwarded-depth: 0", "a-x-tangle-forwarded-depth-0"},
		{"a\x00b", "a-b"},
		{"a\x7fb", "a-b"},
		{"naïve", "nai-ve"},
		{"研究者 🤖", "anon"},
		{"   ", "anon"},
		{long[:512], long[:512]},
		{long, long[:512]},
		{agentbus.Speaker(strings.Repeat("㎯", 170)), agentbus.Speaker(strings.Repeat("rad-s2", 86)[:512])}, // it grows in NFKD
		{agentbus.Speaker(strings.Repeat("x", 511) + ",y"), long[:511]},
	} {
		if got := tt.name.Wire(); got != string(tt.want) {
			t.Errorf("Wire(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
}

var slugGrammar = regexp.MustCompile(`^[a-z0-9_]+(-[a-z0-9_]+)*$`)

// P14: a slug is words of [a-z0-9_] joined by single dashes; it is its own slug.
func FuzzSlug(f *testing.F) {
	for _, s := range []string{"", "GPT-5 Codex", "--a--b--", "naïve", "①②", "研究者", "\u1e9e", "x\xffy", "ﷺ", "a\u200bb", "_-_", "İ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		slug := agentbus.Speaker(s).Slug()
		if !slugGrammar.MatchString(slug) {
			t.Fatalf("Slug(%q) = %q", s, slug)
		}
		if again := agentbus.Speaker(slug).Slug(); again != slug {
			t.Errorf("the slug of %q is %q, and of that %q", s, slug, again)
		}
		wire := agentbus.Speaker(s).Wire()
		if again := agentbus.Speaker(wire).Wire(); again != wire {
			t.Errorf("%q is %q on the wire, and one hop on %q", s, wire, again)
		}
	})
}
