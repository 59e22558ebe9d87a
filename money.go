package agentbus

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Micros is money: millionths of a US dollar. Sums of Micros are exact (R8, G26).
type Micros int64

// maxMicros is the largest amount that is read or computed here. A thousand of
// them still add up without overflowing.
const maxMicros Micros = 9e15

// USD returns m as a decimal of dollars with six places, such as "0.004000".
func (m Micros) USD() string {
	var room [24]byte
	u, b := uint64(m), room[:0] //nolint:gosec // below zero it is negated in the next line, the smallest number too
	if m < 0 {
		u, b = -u, append(b, '-')
	}
	b = append(strconv.AppendUint(b, u/1e6, 10), '.')
	for place := uint64(1e5); place > 0; place /= 10 {
		b = append(b, byte('0'+u/place%10))
	}
	return string(b)
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
	m := Micros(w)*1e6 + Micros(f) + up
	if m > maxMicros {
		return 0, fmt.Errorf("%q is more than the largest amount, 9000000000 dollars", s)
	}
	return m, nil
}

// A Price says what one call costs. The zero Price is free.
type Price struct {
	Input  Micros `json:"input_micros,omitempty"`  // per million input tokens that are not cached
	Cached Micros `json:"cached_micros,omitempty"` // per million cached input tokens; 0: as Input
	Output Micros `json:"output_micros,omitempty"` // per million output tokens
	Call   Micros `json:"call_micros,omitempty"`   // per call
}

// Cost returns the price of a call that used u. It is rounded up once, over the
// whole call (G27), and saturates at 9,000,000,000 dollars, so that a call whose
// agent reports absurd usage is dear, and still leaves room to add.
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
		return maxMicros
	}
	q, _ := bits.Div64(hi, lo, 1e6)
	return Micros(min(q, uint64(maxMicros)))
}

func clamp(n int64) uint64 { return uint64(max(n, 0)) }
