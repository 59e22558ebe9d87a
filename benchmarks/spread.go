package main

import (
	"slices"
	"strconv"
)

// A series is one figure of every round.
type series []float64

// median returns the middle of s, or the mean of the two in the middle.
func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// String shows the median and, of several figures, the smallest and the largest.
func (s series) String() string {
	if len(s) == 0 {
		return "–"
	}
	show := func(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
	if len(s) == 1 {
		return show(s[0])
	}
	return show(s.median()) + " (" + show(slices.Min(s)) + "–" + show(slices.Max(s)) + ")"
}

// A bar is what a figure has to reach.
type bar struct {
	figure, metric string
	most, least    float64 // one of them is set
	goal           float64 // in the same direction; 0: none
}

// met reports whether the median of s reaches b.
func (b bar) met(s series) bool {
	if b.most > 0 {
		return s.median() <= b.most
	}
	return s.median() >= b.least
}

func (b bar) String() string {
	if b.most > 0 {
		return "≤ " + strconv.FormatFloat(b.most, 'g', -1, 64)
	}
	return "≥ " + strconv.FormatFloat(b.least, 'g', -1, 64)
}
