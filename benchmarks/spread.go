//go:build linux

package main

import (
	"strconv"

	"github.com/agentbus/agentbus/internal/measure"
)

// A bar is what a figure has to reach.
type bar struct {
	figure, metric string
	most, least    float64 // one of them is set
	goal           float64 // in the same direction; 0: none
}

// met reports whether the median of s reaches b.
func (b bar) met(s measure.Series) bool {
	if b.most > 0 {
		return s.Median() <= b.most
	}
	return s.Median() >= b.least
}

func (b bar) String() string {
	if b.most > 0 {
		return "≤ " + strconv.FormatFloat(b.most, 'g', -1, 64)
	}
	return "≥ " + strconv.FormatFloat(b.least, 'g', -1, 64)
}
