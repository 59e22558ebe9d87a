package config

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// A Size is a number of bytes. In the file it is digits and B, KiB, MiB or GiB.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String returns s in the largest unit that holds it exactly, such as "4MiB".
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

const (
	sizePattern     = `^[0-9]{1,18}(B|KiB|MiB|GiB)?$`
	durationPart    = `[0-9]{1,18}(\.[0-9]{1,9})?(ns|us|µs|ms|s|m|h)`
	durationPattern = `^([0-9]{1,9}d(` + durationPart + `)*|(` + durationPart + `)+)$`
	ratePattern     = `^[0-9]{1,7}(\.[0-9]{1,9})?$`
	maxRate         = 1_000_000
	usdPattern      = `^[0-9]{1,10}(\.[0-9]+)?$`
)

var (
	sizeRE     = regexp.MustCompile(sizePattern)
	durationRE = regexp.MustCompile(durationPattern)
	rateRE     = regexp.MustCompile(ratePattern)
	intRE      = regexp.MustCompile(`^-?[0-9]{1,18}$`)
)

// ParseSize reads a size such as "4MiB" or "512"; a bare number is bytes.
func ParseSize(s string) (Size, error) {
	m := sizeRE.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size", s)
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(s, m[1]), 10, 64)
	for _, u := range sizeUnits {
		if u.name == m[1] {
			if err == nil && n > math.MaxInt64/u.bytes {
				return 0, fmt.Errorf("%q is more than can be counted", s)
			}
			n *= u.bytes
		}
	}
	return Size(n), err
}

// ParseDuration reads a duration such as "10m", "1h30m" or "30d". A day is 24
// hours.
func ParseDuration(s string) (time.Duration, error) {
	if !durationRE.MatchString(s) {
		return 0, fmt.Errorf("%q is not a duration", s)
	}
	var days time.Duration
	if before, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseInt(before, 10, 64)
		if err != nil || n > math.MaxInt64/int64(24*time.Hour) {
			return 0, fmt.Errorf("%q is longer than can be counted", s)
		}
		if days, s = time.Duration(n)*24*time.Hour, rest; s == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d > math.MaxInt64-days {
		return 0, fmt.Errorf("%q is longer than can be counted", s)
	}
	return days + d, nil
}

// FormatDuration is the shortest text that [ParseDuration] reads as d.
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 && d != day {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// A mistake is what is wrong with one value, and what to write instead.
type mistake struct{ problem, fix string }

// parse reads text as the value of f into v. shown is the text as an error may
// repeat it: what the file says, never what a variable in it held.
func (f field) parse(text string, v reflect.Value) *mistake { return f.parseShown(text, text, v) }

func (f field) parseShown(text, shown string, v reflect.Value) *mistake {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case v.Type() == typeCredential:
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == ' ' && f.pattern != "" }) {
			return &mistake{"the value holds a character that it cannot have in a header", "use visible ASCII characters"}
		}
		v.Set(reflect.ValueOf(agentbus.NewCredential(text)))
		return nil
	case v.Type() == typeDuration:
		d, err := ParseDuration(text)
		v.SetInt(int64(d))
		return f.bounded(err, v.Int(), shown, "a duration", "write a number and a unit, such as 500ms, 30s, 10m, 24h or 30d")
	case v.Type() == typeSize:
		n, err := ParseSize(text)
		v.SetInt(int64(n))
		return f.bounded(err, v.Int(), shown, "a size", "write a number and B, KiB, MiB or GiB, such as 4MiB")
	case v.Type() == typeMicros:
		m, err := agentbus.ParseUSD(text)
		v.SetInt(int64(m))
		return f.bounded(err, v.Int(), shown, "an amount of dollars", "write a decimal such as 0.15, without sign, exponent or currency")
	case v.Kind() == reflect.Int:
		n, err := parseInt(text)
		v.SetInt(n)
		return f.bounded(err, v.Int(), shown, "a whole number", "write it in digits, such as 4")
	case v.Kind() == reflect.Float64:
		return parseRate(text, shown, v)
	case v.Kind() == reflect.Bool:
		return parseBool(text, shown, v)
	}
	return f.parseText(text, shown, v)
}

func parseInt(text string) (int64, error) {
	if !intRE.MatchString(text) {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	return strconv.ParseInt(text, 10, 64)
}

// parseRate reads a number of something a second.
func parseRate(text, shown string, v reflect.Value) *mistake {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !rateRE.MatchString(text) || n > maxRate {
		return &mistake{quote(shown) + " is not a rate", "write a decimal such as 0.5 or 20, up to a million"}
	}
	v.SetFloat(n)
	return nil
}

func parseBool(text, shown string, v reflect.Value) *mistake {
	switch strings.ToLower(text) {
	case "true":
		v.SetBool(true)
	case "false":
		v.SetBool(false)
	default:
		return &mistake{quote(shown) + " is neither true nor false", "write true or false"}
	}
	return nil
}

func (f field) parseText(text, shown string, v reflect.Value) *mistake {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return &mistake{"the value holds a control character", "write it on one line of plain text"}
	}
	if f.enum != nil && !slices.Contains(f.enum, text) {
		return &mistake{quote(shown) + " is not a value it can have", "write " + oneOf(f.enum) + guess(text, f.enum)}
	}
	v.SetString(text)
	return nil
}

// bounded says what is wrong with a number that did not parse or lies outside
// the bounds of f.
func (f field) bounded(err error, n int64, shown, what, fix string) *mistake {
	if err != nil {
		return &mistake{quote(shown) + " is not " + what, fix}
	}
	low, high := f.bound(f.min), f.bound(f.max)
	switch {
	case f.min != "" && n < low:
		return &mistake{quote(shown) + " is less than " + f.min, "write " + f.min + " or more"}
	case f.max != "" && n > high:
		return &mistake{quote(shown) + " is more than " + f.max, "write " + f.max + " or less"}
	}
	return nil
}

// bound reads a bound of f, which is written as a value of f.
func (f field) bound(s string) int64 {
	if s == "" {
		return 0
	}
	v := reflect.New(f.typ).Elem()
	_ = field{typ: f.typ}.parse(s, v) // a test parses every bound
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v.Int()
}

// format writes the value v as the file would.
func format(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case agentbus.Credential:
		return x.String()
	case time.Duration:
		return FormatDuration(x)
	case Size:
		return x.String()
	case agentbus.Micros:
		return dollars(x)
	}
	return fmt.Sprint(v.Interface())
}

// dollars writes m without the zeros that say nothing, such as "0.15".
func dollars(m agentbus.Micros) string {
	return strings.TrimSuffix(strings.TrimRight(m.USD(), "0"), ".")
}
