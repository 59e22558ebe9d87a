package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/typed"
)

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// names returns the keys of m in order, or "none".
func names[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// listing lines up rows of cells, the first of them the head, for stdout. On a
// terminal that is too narrow for the table each row is a paragraph, so that
// what is copied from it is whole.
func (a *app) listing(rows [][]string) string {
	text := harmless(table(rows))
	width, _, ok := a.size(a.stdout)
	if !ok {
		return text
	}
	for line := range strings.Lines(text) {
		if widthOf(strings.TrimRight(line, " \n")) > width {
			return harmless(paragraphs(rows))
		}
	}
	return text
}

// paragraphs are rows of which each cell stands on a line of its own, behind its
// head, but for the first, which begins the paragraph.
func paragraphs(rows [][]string) string {
	var b strings.Builder
	head := rows[0]
	for _, row := range rows[1:] {
		if row[0] != "" { // one without belongs to the row above it
			b.WriteString(row[0] + "\n")
		}
		for i := 1; i < len(row); i++ {
			if row[i] != "" && row[i] != "-" {
				b.WriteString("  " + strings.ToLower(head[i]) + " " + row[i] + "\n")
			}
		}
	}
	return b.String()
}

// table lines up rows of cells, the first of them the head.
func table(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t")) //nolint:errcheck // into memory
	}
	w.Flush() //nolint:errcheck // into memory
	return b.String()
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// harmless is text of an agent or a caller as a terminal may show it: without
// control characters, which could move the cursor or colour what follows.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// operand is a run in a command that somebody is told to type, with flags.
func operand(run agentbus.RunID, flags ...string) string {
	return typed.Operand(harmless(string(run)), flags...)
}

// colours reports whether w is a terminal that shows them, and the user has not
// asked for none.
func (a *app) colours(w io.Writer) paint {
	if v, set := a.env("NO_COLOR"); set && v != "" {
		return false
	}
	_, _, ok := a.size(w)
	return paint(ok)
}

// screen reports whether somebody looks at w: any terminal, also one that can do
// nothing but print, or whose size nobody knows.
func (a *app) screen(w io.Writer) bool {
	if a.terminal != nil {
		_, _, ok := a.terminal(w)
		return ok
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// size returns how large the terminal w is; ok is false for what is none, and for
// one that can do nothing but print.
func (a *app) size(w io.Writer) (width, height int, ok bool) {
	if v, _ := a.env("TERM"); v == "dumb" {
		return 0, 0, false
	}
	if a.terminal != nil {
		return a.terminal(w)
	}
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	return width, height, err == nil && width > 0
}
