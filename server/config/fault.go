package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Fault is one thing that is wrong with a configuration: where, what, and
// what to do about it. It never holds a secret, nor the value of a variable.
type Fault struct {
	File    string `json:"file,omitempty"`   // "" when the value came from somewhere else
	Line    int    `json:"line,omitempty"`   // from 1; 0: the file as a whole
	Column  int    `json:"column,omitempty"` // from 1, in characters
	Source  string `json:"source,omitempty"` // what the value came from when not from a file, such as "env AGENTBUS_LISTEN"
	Key     string `json:"key,omitempty"`    // path of the key, such as agents.critic.url
	Problem string `json:"problem"`
	Fix     string `json:"fix"`
}

// String returns the fault on one line.
func (f Fault) String() string {
	var b strings.Builder
	switch {
	case f.Source != "":
		b.WriteString(f.Source + ": ")
	case f.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", f.File, f.Line, f.Column)
	case f.File != "":
		b.WriteString(f.File + ": ")
	}
	if f.Key != "" {
		b.WriteString(f.Key + ": ")
	}
	b.WriteString(f.Problem)
	if f.Fix != "" {
		b.WriteString("; " + f.Fix)
	}
	return b.String()
}

// A Warning is a Fault that does not keep the bus from starting.
type Warning Fault

// String returns the warning on one line.
func (w Warning) String() string { return Fault(w).String() }

// An Error is a configuration that cannot be used, with all its faults in the
// order of the file.
type Error struct{ Faults []Fault }

// Error returns the faults, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// sortFaults puts fs into the order of the file, and what is not from the file
// last.
func sortFaults[F Fault | Warning](fs []F) {
	slices.SortStableFunc(fs, func(x, y F) int {
		a, b := Fault(x), Fault(y)
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// quote returns s for a message: quoted, and short.
func quote(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return strconv.Quote(s)
}

// oneOf lists names for a sentence: "a", "a or b", "a, b or c".
func oneOf(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// guess returns ", perhaps X" when one of names is near to s.
func guess(s string, names []string) string {
	if near := nearest(s, names); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// nearest returns the name with the smallest edit distance to s, else the first
// that begins with s, or "" when none is near.
func nearest(s string, names []string) string {
	best, distance := "", 1+max(2, min(len(s), 64)/3)
	if len(s) > 64 {
		return ""
	}
	for _, name := range names {
		if d := edits(strings.ToLower(s), name); d < distance && d < len(name) {
			best, distance = name, d
		}
	}
	for _, name := range names {
		if best == "" && len(s) > 2 && strings.HasPrefix(name, strings.ToLower(s)) {
			best = name
		}
	}
	return best
}

// edits counts the letters to insert, delete, replace or swap with their
// neighbour to make b of a.
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
