package builtin

import (
	"regexp"
	"strings"
)

// rules are what eliza asks back, by what it was told; the first that fits.
var rules = []struct {
	told *regexp.Regexp
	asks string
}{
	{regexp.MustCompile(`(?i)\bagreed?\b`), "AGREED. Let us leave it at that."},
	{regexp.MustCompile(`(?i)\bi need (.*)`), "Why do you need $1?"},
	{regexp.MustCompile(`(?i)\bi (?:am|feel) (.*)`), "How long have you been $1?"},
	{regexp.MustCompile(`(?i)\bbecause (.*)`), "Is that the real reason: $1?"},
	{regexp.MustCompile(`(?i)\b(?:should|could|can) we (.*)`), "What would it cost to $1?"},
	{regexp.MustCompile(`(?i)\bwhy (.*)`), "What makes you ask why $1?"},
	{regexp.MustCompile(`(?i)\bhow (.*)`), "Which part of how $1 is unclear?"},
}

// asks are for when no rule fits, in turn.
var asks = []string{
	"Tell me more about that.",
	"What follows from it?",
	"What speaks against it?",
	"Who would disagree, and why?",
}

// reflect returns what eliza says to text, as the n-th thing said.
func reflect(text string, n int) string {
	text = strings.TrimRight(strings.TrimSpace(text), ".?! ")
	for _, r := range rules {
		if m := r.told.FindStringSubmatchIndex(text); m != nil {
			return string(r.told.ExpandString(nil, r.asks, text, m))
		}
	}
	return asks[n%len(asks)]
}
