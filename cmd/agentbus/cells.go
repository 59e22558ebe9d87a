package main

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// cellsOf is how many cells of a terminal a character takes.
func cellsOf(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf): // drawn over the one before
		return 0
	case r >= 0x1f300 && r <= 0x1faff: // pictures
		return 2
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	case width.Neutral, width.EastAsianAmbiguous, width.EastAsianNarrow, width.EastAsianHalfwidth:
	}
	return 1
}

// clipped cuts a line that is wider than most cells, and returns it with its
// width. Colours take none, and end with the line.
func clipped(line string, most int) (string, int) {
	cells, escape, coloured := 0, false, false
	for i, r := range line {
		switch {
		case escape:
			escape = r != 'm'
		case r == '\x1b':
			escape, coloured = true, true
		case cells+cellsOf(r) > max(most-1, 0) && widthOf(line[i:]) > max(most-cells, 0):
			end := "…"
			if coloured {
				end += "\x1b[0m"
			}
			return line[:i] + end, cells + 1
		default:
			cells += cellsOf(r)
		}
	}
	return line, cells
}

// widthOf is how many cells a line takes, colours left out.
func widthOf(line string) (cells int) {
	escape := false
	for _, r := range line {
		switch {
		case escape:
			escape = r != 'm'
		case r == '\x1b':
			escape = true
		default:
			cells += cellsOf(r)
		}
	}
	return cells
}

// wrapped breaks text into lines of most cells, between words where there are
// some.
func wrapped(text string, most int) (lines []string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\t", "    ")) {
		line = strings.TrimRight(line, "\n")
		for widthOf(line) > most {
			at, space, cells := 0, 0, 0
			for i, r := range line {
				if cells += cellsOf(r); cells > most {
					break
				}
				if at = i + len(string(r)); r == ' ' {
					space = at
				}
			}
			if space > 0 {
				at = space
			}
			at = max(at, 1)
			lines = append(lines, strings.TrimRight(line[:at], " "))
			line = line[at:]
		}
		lines = append(lines, line)
	}
	return lines
}
