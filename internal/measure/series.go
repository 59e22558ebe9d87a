// Package measure is what the program and its benchmarks measure with: a series
// of figures of one thing, and how fast a disk takes what it must keep.
package measure

import (
	"math"
	"slices"
	"strconv"
)

// A Series is one figure, measured several times.
type Series []float64

// Median returns the middle of s, or the mean of the two in the middle; 0 of an
// empty one.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Quantiles returns for each q, from 0 to 1, the smallest figure that as large a
// part of s does not exceed; zeros of an empty series.
func (s Series) Quantiles(qs ...float64) []float64 {
	out := make([]float64, len(qs))
	if len(s) == 0 {
		return out
	}
	sorted := slices.Sorted(slices.Values(s))
	for i, q := range qs {
		at := int(math.Ceil(q*float64(len(sorted)))) - 1
		out[i] = sorted[min(max(at, 0), len(sorted)-1)]
	}
	return out
}

// String shows the median and, of several figures, the smallest and the largest.
func (s Series) String() string {
	if len(s) == 0 {
		return "–"
	}
	show := func(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
	if len(s) == 1 {
		return show(s[0])
	}
	return show(s.Median()) + " (" + show(slices.Min(s)) + "–" + show(slices.Max(s)) + ")"
}
