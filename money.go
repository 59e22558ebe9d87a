package agentbus

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Micros is money: millionths of a US dollar. Sums of Micros are exact (R8, G26).
type Micros int64

// USD returns m as a decimal of dollars with six places, such as "0.004000".
func (m Micros) USD() string {
	sign, u := "", uint64(m)
	if m < 0 {
		sign, u = "-", -u
	}
	return fmt.Sprintf("%s%d.%06d", sign, u/1e6, u%1e6)
}

// ParseUSD reads a decimal of dollars, such as "0.15", exactly. More than six
// places round up, so that no price becomes free by being small (G27). Negative
// amounts, exponents and anything above 9,000,000,000 dollars are errors.
func ParseUSD(s string) (Micros, error) {
	whole, frac, _ := strings.Cut(s, ".")
	digits := strings.TrimRight(frac, "0")
	up := Micros(0)
	if len(digits) > 6 {
		digits, up = digits[:6], 1
	}
	w, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || w > 9e9 || strings.Trim(frac, "0123456789") != "" || strings.HasSuffix(s, ".") {
		return 0, fmt.Errorf("%q is not an amount of dollars such as 0.15", s)
	}
	f, _ := strconv.ParseUint(digits+strings.Repeat("0", 6-len(digits)), 10, 63)
	return Micros(w)*1e6 + Micros(f) + up, nil
}

// A Price says what one call costs. The zero Price is free.
type Price struct {
	Input  Micros `json:"input_micros,omitempty"`  // per million input tokens that are not cached
	Cached Micros `json:"cached_micros,omitempty"` // per million cached input tokens; 0: as Input
	Output Micros `json:"output_micros,omitempty"` // per million output tokens
	Call   Micros `json:"call_micros,omitempty"`   // per call
}

// Cost returns the price of a call that used u. It is rounded up once, over the
// whole call (G27), and saturates instead of overflowing.
func (p Price) Cost(u Usage) Micros {
	cached := min(max(u.CachedTokens, 0), max(u.InputTokens, 0))
	cachedPrice := p.Cached
	if cachedPrice == 0 {
		cachedPrice = p.Input
	}
	var hi, lo uint64 // 128 bits: tokens come from agents and may be absurd
	for _, x := range [...][2]uint64{
		{clamp(u.InputTokens - cached), clamp(int64(p.Input))},
		{clamp(cached), clamp(int64(cachedPrice))},
		{clamp(u.OutputTokens), clamp(int64(p.Output))},
		{1e6, clamp(int64(p.Call))},
		{1, 999_999}, // rounds the division up
	} {
		h, l := bits.Mul64(x[0], x[1])
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
	}
	if hi >= 1e6 {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, 1e6)
	return Micros(min(q, math.MaxInt64)) //nolint:gosec // bounded on this line
}

func clamp(n int64) uint64 { return uint64(max(n, 0)) } //nolint:gosec // not negative
