package measure_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/measure"
)

func TestSeries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    measure.Series
		want string
	}{
		{nil, "–"},
		{measure.Series{1.5}, "1.50"},
		{measure.Series{3, 1, 2}, "2.00 (1.00–3.00)"},
		{measure.Series{4, 1, 2, 3}, "2.50 (1.00–4.00)"},
	} {
		if got := c.s.String(); got != c.want {
			t.Errorf("%v: got %q, want %q", []float64(c.s), got, c.want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	var s measure.Series
	if diff := cmp.Diff([]float64{0, 0}, s.Quantiles(0.5, 1)); diff != "" {
		t.Error(diff)
	}
	for i := 100; i > 0; i-- {
		s = append(s, float64(i))
	}
	if diff := cmp.Diff([]float64{1, 50, 99, 100}, s.Quantiles(0, 0.5, 0.99, 1)); diff != "" {
		t.Error(diff)
	}
}

func TestSyncs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []time.Duration{0, time.Millisecond} {
		took, err := measure.Syncs(t.Context(), dir, d)
		if err != nil || len(took) == 0 || took.Rate() <= 0 {
			t.Errorf("for %v: %v, %v", d, took, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := measure.Syncs(t.Context(), dir+"/none", 0); err == nil {
		t.Error("there is no such directory")
	}
}
