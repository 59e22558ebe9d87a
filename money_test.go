package agentbus_test

import (
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
)

const mostMicros = agentbus.Micros(9_000_000_000_000_000) // 9,000,000,000 dollars

// G26: money prints with all its places.
func TestMicrosUSD(t *testing.T) {
	t.Parallel()
	for m, want := range map[agentbus.Micros]string{
		0: "0.000000", 1: "0.000001", 4_000: "0.004000", 1_000_000: "1.000000", 12_345_678: "12.345678", -1: "-0.000001",
		-1_500_000: "-1.500000", math.MaxInt64: "9223372036854.775807", math.MinInt64: "-9223372036854.775808",
	} {
		if got := m.USD(); got != want {
			t.Errorf("USD(%d) = %q, want %q", int64(m), got, want)
		}
	}
}

func TestParseUSD(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]agentbus.Micros{
		"0": 0, "0.0": 0, "0.15": 150_000, "1": 1_000_000, "007": 7_000_000, "0.000001": 1, "0.004": 4_000, "2.500000000": 2_500_000,
		"0.0000001": 1, "0.0000010000001": 2, "1.9999999": 2_000_000, // G27: what is smaller than a micro rounds up
		"9000000000": mostMicros, "9000000000.000000": mostMicros, "8999999999.999999": mostMicros - 1, "8999999999.9999991": mostMicros,
	} {
		if got, err := agentbus.ParseUSD(s); err != nil || got != want {
			t.Errorf("ParseUSD(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", ".", "1.", ".5", "+1", "-1", "-0", "1_0", "1e3", "1E3", "0x10", "1,5", "1 ", " 1", "1.2.3", "1.-2", "1.+2", "1.2e3", "$1", "NaN", "Inf",
		"٣", "1.٣", "9000000001", "9000000000.000001", "9000000000.0000001", "9223372036854775808", "1.\x00", strings.Repeat("9", 400),
	} {
		if got, err := agentbus.ParseUSD(s); err == nil || got != 0 {
			t.Errorf("ParseUSD(%q) = %d, %v, want an error", s, got, err)
		}
	}
}

// R8, G26: what was printed reads back as it was.
func TestParseUSDReadsWhatUSDPrints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := agentbus.Micros(rapid.Int64Range(0, int64(mostMicros)).Draw(t, "micros"))
		if got, err := agentbus.ParseUSD(m.USD()); err != nil || got != m {
			t.Errorf("%d printed as %s reads as %d, %v", int64(m), m.USD(), int64(got), err)
		}
	})
}

// R8, G26: a thousand small amounts add up to their sum, where the reference,
// which rounds each to cents, finds nothing.
func TestSumsAreExact(t *testing.T) {
	t.Parallel()
	var sum agentbus.Micros
	for range 1000 {
		m, err := agentbus.ParseUSD("0.004")
		if err != nil {
			t.Fatal(err)
		}
		sum += m
	}
	if got := sum.USD(); got != "4.000000" {
		t.Errorf("1000 times $0.004 is $%s", got)
	}
}

// G26, G27: a cost is the exact price of all tokens, rounded up once over the
// call.
func TestPriceCost(t *testing.T) {
	t.Parallel()
	perMillion := agentbus.Price{Input: 3_000_000, Cached: 300_000, Output: 15_000_000}
	for _, tt := range []struct {
		name  string
		price agentbus.Price
		usage agentbus.Usage
		want  agentbus.Micros
	}{
		{"free", agentbus.Price{}, agentbus.Usage{InputTokens: 1 << 40, OutputTokens: 1 << 40}, 0},
		{"nothing used", perMillion, agentbus.Usage{}, 0},
		{"exact", perMillion, agentbus.Usage{InputTokens: 1000, OutputTokens: 100}, 4_500},
		{"cached tokens are cheaper", perMillion, agentbus.Usage{InputTokens: 1000, CachedTokens: 600, OutputTokens: 100}, 2_880},
		{"no price for cached ones: as input", agentbus.Price{Input: 3_000_000}, agentbus.Usage{InputTokens: 1000, CachedTokens: 1000}, 3_000},
		{"more cached than input", perMillion, agentbus.Usage{InputTokens: 10, CachedTokens: 1 << 40}, 3},
		{"one token rounds up", agentbus.Price{Input: 1}, agentbus.Usage{InputTokens: 1}, 1},
		{"three parts round up once", agentbus.Price{Input: 400_000, Cached: 400_000, Output: 400_000}, agentbus.Usage{InputTokens: 2, CachedTokens: 1, OutputTokens: 1}, 2},
		{"per call", agentbus.Price{Call: 5}, agentbus.Usage{}, 5},
		{"per call and token", agentbus.Price{Call: 5, Input: 1}, agentbus.Usage{InputTokens: 1}, 6},
		{"negative usage costs nothing", perMillion, agentbus.Usage{InputTokens: -1000, CachedTokens: -1, OutputTokens: -1}, 0},
		{"negative prices cost nothing", agentbus.Price{Input: -5, Call: -5}, agentbus.Usage{InputTokens: 1 << 40}, 0},
		{"saturates", agentbus.Price{Input: math.MaxInt64, Output: math.MaxInt64}, agentbus.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}, mostMicros},
		{"saturates past 64 bits", agentbus.Price{Input: 2_000_000}, agentbus.Usage{InputTokens: math.MaxInt64}, mostMicros},
	} {
		if got := tt.price.Cost(tt.usage); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// G26: Cost agrees with big integers, for any price and usage.
func TestPriceCostIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int64 {
			return rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 1<<40), rapid.Int64Range(0, math.MaxInt64)).Draw(t, name)
		}
		p := agentbus.Price{Input: agentbus.Micros(n("input")), Cached: agentbus.Micros(n("cached")), Output: agentbus.Micros(n("output")), Call: agentbus.Micros(n("call"))}
		u := agentbus.Usage{InputTokens: n("input tokens"), OutputTokens: n("output tokens")}
		u.CachedTokens = rapid.Int64Range(0, u.InputTokens).Draw(t, "cached tokens")

		cached := p.Cached
		if cached == 0 {
			cached = p.Input
		}
		sum := new(big.Int)
		for _, x := range [][2]int64{
			{u.InputTokens - u.CachedTokens, int64(p.Input)},
			{u.CachedTokens, int64(cached)},
			{u.OutputTokens, int64(p.Output)},
			{1e6, int64(p.Call)},
			{1, 999_999},
		} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(x[0]), big.NewInt(x[1])))
		}
		want := sum.Div(sum, big.NewInt(1e6))
		if most := big.NewInt(int64(mostMicros)); want.Cmp(most) > 0 {
			want = most
		}
		if got := p.Cost(u); int64(got) != want.Int64() {
			t.Errorf("%+v.Cost(%+v) = %d, want %s", p, u, got, want)
		}
	})
}

// G27: FuzzParseUSD checks each amount against big rationals.
func FuzzParseUSD(f *testing.F) {
	for _, s := range []string{"", ".", "1.", ".5", "+1", "1_0", "1e3", "0.15", "0.0000001", "9000000000", "9000000000.0000001", "00.10", "-1", "1.2.3"} {
		f.Add(s)
	}
	grammar := regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := agentbus.ParseUSD(s)
		exact, ok := new(big.Rat).SetString(s)
		if !grammar.MatchString(s) || !ok {
			if err == nil {
				t.Fatalf("ParseUSD(%q) = %d", s, got)
			}
			return
		}
		exact.Mul(exact, big.NewRat(1e6, 1))
		up := new(big.Int).Add(exact.Num(), exact.Denom()) // (num + denom - 1) / denom rounds up
		want := up.Div(up.Sub(up, big.NewInt(1)), exact.Denom())
		if tooMuch := want.Cmp(big.NewInt(int64(mostMicros))) > 0; tooMuch != (err != nil) {
			t.Fatalf("ParseUSD(%q) = %d, %v", s, got, err)
		}
		if err == nil && int64(got) != want.Int64() {
			t.Errorf("ParseUSD(%q) = %d, want %s", s, got, want)
		}
	})
}
