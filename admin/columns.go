package admin

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// edgeColumns are those of the table of edges.
func edgeColumns() []column[console.Edge] {
	type row = console.Edge
	marks := func(e *row) (n int) {
		if e.Cycle {
			n = 2
		}
		if e.Verbatim {
			n++
		}
		return n
	}
	return []column[row]{
		{console.Column{Name: "From", URL: "from"}, least(func(e *row) string { return e.From })},
		{console.Column{Name: "To", URL: "to"}, least(func(e *row) string { return e.To })},
		{console.Column{Name: "Calls", Number: true, Explain: "executed, or being executed", URL: "calls"}, most(func(e *row) int { return e.Calls })},
		{console.Column{Name: "Errors", Number: true, Explain: "the share that failed or was refused", URL: "errors"}, most(func(e *row) float64 { return e.Errors })},
		{console.Column{Name: "p95", Number: true, Explain: "19 of 20 took no longer, with the wait for a place", URL: "p95"}, most(func(e *row) float64 { return e.P95 })},
		{console.Column{Name: "Cost", Number: true, URL: "cost"}, most(func(e *row) agentbus.Micros { return e.Cost })},
		{console.Column{Name: "Marks", Explain: "cycles first, then credentials that go on as they came", URL: "marks"}, most(marks)},
	}
}

// payerColumns are those of the table of payers that a balance tells.
func payerColumns() []column[agentbus.Balance] {
	type row = agentbus.Balance
	return []column[row]{
		{console.Column{Name: "Payer", URL: "payer"}, least(func(b *row) agentbus.Payer { return b.Payer })},
		{console.Column{Name: "Cap", Explain: "the budgets of money that bound what the payer's calls come to; the fullest first", URL: "cap"}, order[row]{}},
		{console.Column{Name: "Remaining", Number: true, Explain: "of the cap, neither settled nor reserved", URL: "remaining"}, order[row]{rising: true}},
		{console.Column{Name: "Settled", Number: true, URL: "settled"}, most(func(b *row) agentbus.Micros { return b.Charged })},
		{console.Column{Name: "Reserved", Number: true, Explain: "held by calls in flight", URL: "reserved"}, most(func(b *row) agentbus.Micros { return b.Held })},
		{console.Column{Name: "Voided", Number: true, Explain: "attempts that failed: nobody pays", URL: "voided"}, most(func(b *row) int64 { return b.Voids })},
		{console.Column{Name: "Present rate", Number: true, Explain: "charged in the last hour", URL: "rate"}, order[row]{}},
		{console.Column{Name: "Forecast", Number: true, Explain: "at the end of the period, at the present rate", URL: "forecast"}, order[row]{}},
		{console.Column{Name: "From memory", Number: true, Explain: "duplicates answered without charge", URL: "replays"}, most(func(b *row) int64 { return b.Replays })},
		{console.Column{Name: "Refused", Number: true, URL: "refused"}, most(func(b *row) int64 { return b.Refusals })},
	}
}

// weights are the orders of payers by what no balance tells, by name. Of several
// caps the one that comes first counts.
var weights = map[string]func(x, y *console.Payer) int{
	"cap": most(func(p *console.Payer) (full float64) {
		for _, c := range p.Caps {
			full = max(full, float64(c.Settled+c.Reserved)/float64(max(c.Limit, 1)))
		}
		return full
	}).compare,
	"remaining": least(func(p *console.Payer) agentbus.Micros {
		left := agentbus.Micros(math.MaxInt64)
		for _, c := range p.Caps {
			left = min(left, c.Remaining)
		}
		return left
	}).compare,
	"rate": most(func(p *console.Payer) agentbus.Micros { return p.Rate }).compare,
	"forecast": most(func(p *console.Payer) agentbus.Micros {
		at := agentbus.Micros(math.MinInt64)
		for _, c := range p.Caps {
			at = max(at, c.Forecast)
		}
		return at
	}).compare,
}

// spentOn is what a part of a payer's spending is of.
func spentOn(s *agentbus.Spending) string { return s.Of }

// partColumns are those of a payer's spending by agent, run or day.
func partColumns(title string) []column[agentbus.Spending] {
	type row = agentbus.Spending
	return []column[row]{
		{console.Column{Name: title, URL: "of"}, least(spentOn)},
		{Column: console.Column{Name: "Share", Unsaid: true}},
		{console.Column{Name: "Settled", Number: true, URL: "settled"}, most(func(s *row) agentbus.Micros { return s.Charged })},
		{console.Column{Name: "Calls", Number: true, URL: "calls"}, most(func(s *row) int64 { return s.Calls })},
		{console.Column{Name: "Voided", Number: true, URL: "voided"}, most(func(s *row) int64 { return s.Voids })},
	}
}

// capColumns are those of the caps of a payer.
func capColumns() []column[console.Cap] {
	type row = console.Cap
	money := func(name, by string, of func(*row) agentbus.Micros) column[row] {
		return column[row]{console.Column{Name: name, Number: true, URL: by}, most(of)}
	}
	return []column[row]{
		{console.Column{Name: "Period", URL: "period"}, least(func(c *row) int { return slices.Index([]string{"hour", "day", "month", "total"}, c.Period) })},
		{console.Column{Name: "Used", URL: "used"}, most(func(c *row) int { return c.SettledShare() + c.ReservedShare() })},
		money("Cap", "cap", func(c *row) agentbus.Micros { return c.Limit }),
		money("Settled", "settled", func(c *row) agentbus.Micros { return c.Settled }),
		money("Reserved", "reserved", func(c *row) agentbus.Micros { return c.Reserved }),
		money("Remaining", "remaining", func(c *row) agentbus.Micros { return c.Remaining }),
		money("Forecast at the present rate", "forecast", func(c *row) agentbus.Micros { return c.Forecast }),
	}
}

// staleColumns are those of what a payer's calls have held for too long.
func staleColumns() []column[console.Stale] {
	type row = console.Stale
	return []column[row]{
		{console.Column{Name: "Call", URL: "call"}, least(func(s *row) int64 { return s.Call })},
		{console.Column{Name: "Agent", URL: "agent"}, least(func(s *row) string { return s.Agent })},
		{console.Column{Name: "Run", URL: "run"}, least(func(s *row) agentbus.RunID { return s.Run })},
		{console.Column{Name: "Reserved", Number: true, URL: "reserved"}, most(func(s *row) agentbus.Micros { return s.Held })},
		{console.Column{Name: "Since", URL: "since"}, least(func(s *row) int64 { return s.Began.UnixMicro() })},
		{console.Column{Name: "Executed by", URL: "owner"}, least(func(s *row) string { return s.Owner })},
	}
}

// agentColumns are those of the table of agents.
func agentColumns() []column[console.AgentRow] {
	type row = console.AgentRow
	return []column[row]{
		{console.Column{Name: "State", URL: "state"}, least((*row).Word)},
		{console.Column{Name: "Agent", URL: "name"}, least(func(r *row) string { return r.Name })},
		{console.Column{Name: "Where", URL: "where"}, least((*row).Where)},
		{
			console.Column{Name: "In flight", Number: true, Explain: "calls that this process is executing, of those that it may, and calls that wait for a place", URL: "in_flight"},
			most(func(r *row) int { return r.InFlight }),
		},
		{console.Column{Name: "Calls", Number: true, Explain: "that ended", URL: "calls"}, most(func(r *row) int { return r.Calls })},
		{console.Column{Name: "Errors", Explain: "by class, the most frequent first", URL: "errors"}, most((*row).Failed)},
		{console.Column{Name: "p50", Number: true, URL: "p50"}, most(func(r *row) float64 { return r.P50 })},
		{console.Column{Name: "p95", Number: true, URL: "p95"}, most(func(r *row) float64 { return r.P95 })},
		{console.Column{Name: "p99", Number: true, URL: "p99"}, most(func(r *row) float64 { return r.P99 })},
		{console.Column{Name: "Last success", URL: "last"}, most(func(r *row) int64 { return r.LastSuccess.UnixMicro() })},
		{console.Column{Name: "Cost a turn", Number: true, Explain: "of settled calls, on average", URL: "cost"}, most(func(r *row) agentbus.Micros { return r.Turn })},
	}
}

// remarkColumns are those of the table of notices.
func remarkColumns() []column[console.Remark] {
	type row = console.Remark
	return []column[row]{
		{console.Column{Name: "What", URL: "what"}, least(func(m *row) console.RemarkKind { return m.Kind })},
		{console.Column{Name: "When", URL: "when"}, most(func(m *row) int64 { return m.At.UnixMicro() })},
		{console.Column{Name: "Caller", URL: "caller"}, least(func(m *row) string { return m.Caller })},
		{console.Column{Name: "Agent", URL: "agent"}, least(func(m *row) string { return m.Agent })},
		{console.Column{Name: "Run", URL: "run"}, least(func(m *row) agentbus.RunID { return m.Run })},
		{console.Column{Name: "Times", Number: true, URL: "times"}, most(func(m *row) int { return m.Count })},
		{console.Column{Name: "What became of it", URL: "state"}, least(func(m *row) agentbus.CallState { return m.State })},
	}
}

// decidedColumns are those of the table of what was decided.
func decidedColumns() []column[console.InterruptCard] {
	type row = console.InterruptCard
	return []column[row]{
		{console.Column{Name: "Decision", URL: "decision"}, least(func(c *row) agentbus.Decision { return c.Resolution.Decision })},
		{console.Column{Name: "What was asked", URL: "asked"}, least(func(c *row) string { return cmp.Or(c.Ask.Title, c.Asks) })},
		{console.Column{Name: "Who asked", URL: "asker"}, least(func(c *row) string { return strings.Join(c.Way, " ") })},
		{console.Column{Name: "Run", URL: "run"}, least(func(c *row) agentbus.RunID { return c.Run })},
		{console.Column{Name: "Who decided", URL: "by"}, least((*row).Who)},
		{console.Column{Name: "When", URL: "when"}, most(func(c *row) int64 { return c.Resolution.At.UnixMicro() })},
	}
}
