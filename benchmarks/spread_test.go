package main

import "testing"

func TestSeries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    series
		want string
	}{
		{nil, "–"},
		{series{1.5}, "1.50"},
		{series{3, 1, 2}, "2.00 (1.00–3.00)"},
		{series{4, 1, 2, 3}, "2.50 (1.00–4.00)"},
	} {
		if got := c.s.String(); got != c.want {
			t.Errorf("%v: got %q, want %q", []float64(c.s), got, c.want)
		}
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	most, least := bar{most: 1.5}, bar{least: 0.7}
	for _, c := range []struct {
		b    bar
		of   series
		want bool
	}{
		{most, series{1, 1.5, 9}, true}, {most, series{1.6}, false}, {least, series{0.1, 0.7, 0.8}, true}, {least, series{0.69}, false},
	} {
		if got := c.b.met(c.of); got != c.want {
			t.Errorf("%v of %v: got %t", c.of, c.b, got)
		}
	}
}
