//go:build linux

package main

import (
	"testing"

	"github.com/agentbus/agentbus/internal/measure"
)

func TestBar(t *testing.T) {
	t.Parallel()
	most, least := bar{most: 1.5}, bar{least: 0.7}
	for _, c := range []struct {
		b    bar
		of   measure.Series
		want bool
	}{
		{most, measure.Series{1, 1.5, 9}, true}, {most, measure.Series{1.6}, false}, {least, measure.Series{0.1, 0.7, 0.8}, true}, {least, measure.Series{0.69}, false},
	} {
		if got := c.b.met(c.of); got != c.want {
			t.Errorf("%v of %v: got %t", c.of, c.b, got)
		}
	}
}
