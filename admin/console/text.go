package console

import (
	"encoding/hex"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// functions are what templates call, beside asset.
func functions() template.FuncMap {
	return template.FuncMap{
		"money":         func(m agentbus.Micros) Money { return Money{Amount: m} },
		"estimated":     func(m agentbus.Micros, yes bool) Money { return Money{m, yes} },
		"short":         short,
		"label":         label,
		"segment":       func(v any) string { return httpx.Segment(fmt.Sprint(v)) },
		"clip":          clip,
		"add":           func(a, b int) int { return a + b },
		"percent":       percent,
		"milliseconds":  func(ms float64) string { return duration(time.Duration(ms * float64(time.Millisecond))) },
		"count":         count,
		"rfc3339":       func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"exact":         func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000000 UTC") },
		"clock":         func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"duration":      duration,
		"value":         value,
		"exactDuration": func(d time.Duration) string { return d.String() },
		"hex":           func(d agentbus.Digest) string { return hex.EncodeToString(d[:]) },
		"plural": func(n any, one, many string) string {
			if fmt.Sprint(n) == "1" {
				return one
			}
			return many
		},
	}
}

// value is the value of a field that goes back as it is: what turns the direction
// of text stands in it by its number, which [straight] leaves.
func value(s string) template.HTMLAttr {
	s = template.HTMLEscapeString(s)
	for _, turn := range turns {
		r, _ := utf8.DecodeRune(turn)
		s = strings.ReplaceAll(s, string(turn), fmt.Sprintf("&#%d;", r))
	}
	return template.HTMLAttr(`value="` + s + `"`) //nolint:gosec // it is escaped
}

// shown is how many characters of an id are read (U2).
const shown = 8

// short returns an id as it is read: eight characters, those behind its prefix
// when it has one.
func short(id any) string {
	s := fmt.Sprint(id)
	if utf8.RuneCountInString(s) <= shown+2 {
		return s
	}
	const longest = 6 // of a prefix, such as run_ or evt_
	for i := range longest {
		if i < len(s) && s[i] == '_' {
			s = s[i+1:]
			break
		}
	}
	if r := []rune(s); len(r) > shown {
		// Ids that begin with the time they were made at tell each other apart by
		// their ends.
		return "…" + string(r[len(r)-shown:])
	}
	return s
}

// clip returns the first n characters of a text, with a sign of what is missing.
func clip(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// percent returns a share as it is read: never 0 when it is more.
func percent(share float64) string {
	switch {
	case share > 0 && share < 0.01:
		return "< 1 %"
	case share < 1 && share > 0.99:
		return "> 99 %"
	}
	return strconv.Itoa(int(math.Round(share*100))) + " %"
}

// count returns a number with its thousands apart.
func count(n any) string {
	s := fmt.Sprint(n)
	digits := len(s)
	if s != "" && s[0] == '-' {
		digits--
	}
	for i := len(s) - 3; i > len(s)-digits; i -= 3 {
		s = s[:i] + "\u202f" + s[i:] // a thin space, so that it is no other number
	}
	return s
}

// duration returns d as it is read: three digits and a unit.
func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(math.Floor(d.Seconds()*100)/100, 'f', 2, 64) + " s"
	case d < time.Minute:
		return strconv.FormatFloat(math.Floor(d.Seconds()*10)/10, 'f', 1, 64) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}

// label returns who pays as they are read: a name of up to 24 characters, of a
// longer one its first eight.
func label(id any) string {
	s := fmt.Sprint(id)
	if utf8.RuneCountInString(s) <= 24 {
		return s
	}
	return string([]rune(s)[:shown]) + "…"
}
