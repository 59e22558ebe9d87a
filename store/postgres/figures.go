package postgres

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

// NewestCalls returns calls and refusals of all runs, the newest first, at most
// limit, up to the first that began before since.
func (s *Store) NewestCalls(ctx context.Context, since time.Time, limit int) ([]agentbus.CallRecord, error) {
	const what = "read the newest calls"
	if err := s.settled(ctx, what); err != nil {
		return nil, err
	}
	var calls []agentbus.CallRecord
	err := s.each(ctx, what, func(r *row) bool {
		c := readCall(r)
		if c.Began.Before(since) {
			return false
		}
		calls = append(calls, c)
		return len(calls) < limit
	}, "SELECT "+callColumns+" FROM calls c ORDER BY c.id DESC LIMIT $1", limit)
	return calls, err
}

// spendingBy are the columns that a payer's entries are added up by, and the
// order in which the sums come.
var spendingBy = map[agentbus.SpendingKey][2]string{
	agentbus.SpendingByAgent: {"coalesce(c.agent, '')", "4 DESC, 1"},
	agentbus.SpendingByRun:   {"coalesce(c.run, '')", "4 DESC, 1"},
	agentbus.SpendingByDay:   {"to_char(to_timestamp(e.at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')", "1 DESC"},
}

// Spending adds up a payer's entries by agent, run or day (U13).
func (s *Store) Spending(ctx context.Context, q agentbus.SpendingQuery) ([]agentbus.Spending, error) {
	by := spendingBy[q.By]
	return list(ctx, s, "add up what a payer spent", func(r *row) agentbus.Spending {
		return agentbus.Spending{Of: r.text(), Calls: r.int64(), Voids: r.int64(), Charged: r.micros(), Unbilled: r.micros()}
	}, "SELECT "+by[0]+`, count(*) FILTER (WHERE e.kind = 'charge'), count(*) FILTER (WHERE e.kind = 'void'), sum(e.amount)::bigint, sum(e.unbilled)::bigint
		FROM entries e LEFT JOIN calls c ON c.payer = e.payer AND c.id = e.call_id WHERE e.payer = $1 AND e.seq > $2 GROUP BY 1 ORDER BY `+by[1]+" LIMIT $3",
		string(q.Payer), q.After, q.Limit)
}

// Spent returns what a payer was charged since a time, and by how many entries.
// It looks at the newest most entries.
func (s *Store) Spent(ctx context.Context, payer agentbus.Payer, since time.Time, most int) (charged agentbus.Micros, entries int64, err error) {
	_, _, err = only(ctx, s, "see what a payer spent lately", func(r *row) struct{} {
		charged, entries = r.micros(), r.int64()
		return struct{}{}
	}, `SELECT coalesce(sum(amount), 0)::bigint, count(*) FROM (SELECT amount, at FROM entries WHERE payer = $1 ORDER BY seq DESC LIMIT $2) newest WHERE at >= $3`,
		string(payer), most, micros(since))
	return charged, entries, err
}

// Holds returns what unfinished calls hold of their budgets, by call.
func (s *Store) Holds(ctx context.Context, calls []int64) (map[int64]agentbus.Micros, error) {
	held := make(map[int64]agentbus.Micros, len(calls))
	for _, id := range calls {
		amount, found, err := only(ctx, s, "see what a call holds", (*row).micros, "SELECT amount FROM holds WHERE call_id = $1", id)
		if err != nil {
			return nil, err
		}
		if found {
			held[id] = amount
		}
	}
	return held, nil
}

// Replicas returns the processes that say that they use this store and live, by
// name.
func (s *Store) Replicas(ctx context.Context) ([]string, error) {
	return list(ctx, s, "see which processes live", (*row).text, "SELECT owner FROM owners WHERE expires > "+nowMicros+" ORDER BY owner")
}
