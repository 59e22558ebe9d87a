package eventlog

import (
	"slices"
	"strings"
)

// A shape is tokens by their looks: a head at the beginning of a word, and then as
// many letters as there are.
type shape struct {
	id, head string
	more     string // letters beside those of the alphabet and digits
	upper    bool   // without small letters
	least    int    // letters behind the head
	parts    int    // runs of letters with a dot between them, each as long; 0: one
	padded   bool   // with any number of = behind them
}

var shapes = []shape{
	{id: "api-key", head: "sk-", more: "_-", least: 16},
	{id: "github-token", head: "github_pat_", more: "_", least: 22},
	{id: "github-token", head: "ghp_", least: 20},
	{id: "github-token", head: "gho_", least: 20},
	{id: "github-token", head: "ghs_", least: 20},
	{id: "slack-token", head: "xoxb-", more: "-", least: 10},
	{id: "slack-token", head: "xoxp-", more: "-", least: 10},
	{id: "aws-key", head: "AKIA", upper: true, least: 16},
	{id: "google-key", head: "AIza", more: "_-", least: 35},
	{id: "agentbus-key", head: "ab_", more: "_-", least: 43},
	{id: "jwt", head: "eyJ", more: "_-", least: 8, parts: 3},
	{id: "bearer", head: "Bearer ", more: "._~+/-", least: 16, padded: true},
}

func (s *shape) letter(c byte) bool {
	return c >= 'a' && c <= 'z' && !s.upper || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(s.more, c) >= 0
}

// run returns where the letters end that begin at from.
func (s *shape) run(text string, from int) int {
	for from < len(text) && s.letter(text[from]) {
		from++
	}
	return from
}

// tail returns where a token ends whose first part ends at first; -1: it is none.
func (s *shape) tail(text string, first int) int {
	end := first
	for range s.parts - 1 {
		from := end + 1
		if end == len(text) || text[end] != '.' {
			return -1
		}
		if end = s.run(text, from); end-from < s.least {
			return -1
		}
	}
	for s.padded && end < len(text) && text[end] == '=' {
		end++
	}
	return end
}

// A match is where a secret stands, and which of the heads it begins with.
type match struct{ from, to, which int }

// A candidate is the next place where one may begin with a head. What was read of
// the text behind it is remembered: however often a head stands in a token, the
// token is read once.
type candidate struct {
	which, at  int
	first, end int // where a first part ends, and where the token does, or -1
}

// matches returns where secrets stand in text, from left to right; of those that
// begin at one place the first one of the heads. Text in which no head stands,
// which most is, is looked through for them and for nothing else.
func (r *Redactor) matches(text string) (found []match) {
	var live []candidate
	for which, head := range r.heads {
		if at := strings.Index(text, head); at >= 0 {
			live = append(live, candidate{which: which, at: at})
		}
	}
	for over := 0; len(live) > 0; { // so much of the text is decided
		next := 0
		for i := range live {
			if live[i].at < live[next].at {
				next = i
			}
		}
		c := &live[next]
		if end := r.end(text, c); c.at >= over && end >= 0 {
			found, over = append(found, match{c.at, end, c.which}), end
		}
		from := max(over, c.at+1)
		if at := strings.Index(text[from:], r.heads[c.which]); at >= 0 {
			c.at = from + at
		} else {
			live = slices.Delete(live, next, next+1)
		}
	}
	return found
}

// end returns where the secret ends that begins with c; -1: none does.
func (r *Redactor) end(text string, c *candidate) int {
	begins := c.at + len(r.heads[c.which])
	if c.which < r.fixed {
		return begins
	}
	if c.at > 0 && wordByte(text[c.at-1]) {
		return -1
	}
	s := &shapes[c.which-r.fixed]
	if begins > c.first || c.first == 0 {
		c.first = s.run(text, begins)
		c.end = s.tail(text, c.first)
	}
	if c.first-begins < s.least {
		return -1
	}
	return c.end
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}
