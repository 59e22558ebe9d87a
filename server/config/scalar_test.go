package config_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus/server/config"
)

func TestParseSize(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]config.Size{"0": 0, "512": 512, "1B": 1, "64KiB": 64 << 10, "4MiB": 4 << 20, "1GiB": 1 << 30} {
		if got, err := config.ParseSize(s); got != want || err != nil {
			t.Errorf("ParseSize(%q) = %v, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-1", "4MB", "4 MiB", "4mib", "0x4", "1e3", "1.5MiB", "MiB", "99999999999GiB", "9999999999999999999"} {
		if got, err := config.ParseSize(s); err == nil {
			t.Errorf("ParseSize(%q) = %v, want an error", s, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"0s": 0, "500ms": 500 * time.Millisecond, "10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute,
		"30d": 720 * time.Hour, "1d12h": 36 * time.Hour, "0d": 0,
	} {
		if got, err := config.ParseDuration(s); got != want || err != nil {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "1", "-1s", "+1s", "1 s", "1w", "d", "1h1d", ".5s", "1.s", "106752d", "106751d23h48m", "999999999999999999h"} {
		if got, err := config.ParseDuration(s); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", s, got)
		}
	}
}

func TestWhatIsFormattedParses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := config.Size(rapid.Int64Range(0, 1<<40).Draw(t, "size"))
		if got, err := config.ParseSize(s.String()); got != s || err != nil {
			t.Fatalf("%s = %v, %v", s, got, err)
		}
		d := time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "duration"))
		if rapid.Bool().Draw(t, "round") {
			d = d.Round(time.Minute)
		}
		if got, err := config.ParseDuration(config.FormatDuration(d)); got != d || err != nil {
			t.Fatalf("%s = %v, %v", config.FormatDuration(d), got, err)
		}
	})
}
