package eventlog_test

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// E28: what is taken out of a text is what a pattern of all secrets and shapes
// takes out, in whatever order and company they stand.
func TestTextIsReadAsByAPattern(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(`s3cr3t-of-the-writer|quo"te\\and é|\b(?:sk-[A-Za-z0-9_-]{16,}|github_pat_[A-Za-z0-9_]{22,}|gh[pos]_[A-Za-z0-9]{20,}|` +
		`xox[bp]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16,}|AIza[A-Za-z0-9_-]{35,}|ab_[A-Za-z0-9_-]{43,}|` +
		`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}|Bearer [A-Za-z0-9._~+/-]{16,}=*)`)
	pieces := []string{
		secret, `quo"te\and é`, "quo\"te", "sk-", "github_pat_", "ghp_", "gho_", "ghs_", "xoxb-", "xoxp-", "AKIA", "AIza", "ab_", "eyJ", "Bearer ",
		" ", ".", "-", "_", "=", "é", "\xff", "abcdefgh", "ABCDEFGH12345678", "0123456789abcdef", strings.Repeat("x", 43), "~+/",
	}
	named := regexp.MustCompile(`\[REDACTED:[a-z.-]+\]`)
	random := rand.New(rand.NewPCG(1, 2))
	for range 2_000 {
		var b strings.Builder
		for range 1 + random.IntN(12) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		text := b.String()
		want := pattern.ReplaceAllLiteralString(text, "[REDACTED]")
		if got := named.ReplaceAllLiteralString(redactor().Text(text), "[REDACTED]"); got != want {
			t.Fatalf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// E28: a text that is nothing but beginnings stays as it is.
func TestManyBeginnings(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"eyJ-", "sk- ", "xeyJabcdefgh.", "Bearer ", "-eyJabcdefgh.abcdefgh ", "gho_gho_", "AKIAa"} {
		if text := strings.Repeat(piece, 10_000); redactor().Text(text) != text {
			t.Errorf("%q changed", piece)
		}
	}
}
