package admin

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// records reads how each agent did lately (U14).
func (a *API) records(r *http.Request, l look) (map[string]console.Record, error) {
	calls, partial, err := a.calls(r, l)
	if err != nil {
		return nil, err
	}
	found := recordsOf(calls)
	for name, rec := range found {
		rec.Since, rec.Partial = l.since, partial
		found[name] = rec
	}
	return found, nil
}

// recordsOf makes the record of each agent of calls.
func recordsOf(calls []agentbus.CallRecord) map[string]console.Record {
	byAgent := map[string][]*agentbus.CallRecord{}
	for i := range calls {
		byAgent[calls[i].Agent] = append(byAgent[calls[i].Agent], &calls[i])
	}
	found := make(map[string]console.Record, len(byAgent))
	for name, of := range byAgent {
		found[name] = recordOf(of)
	}
	return found
}

// recordOf makes a record of the calls of one agent.
func recordOf(calls []*agentbus.CallRecord) console.Record {
	rec, codes := console.Record{Errors: []console.CodeCount{}}, make(map[agentbus.Code]int)
	var took []time.Duration
	var cost agentbus.Micros
	for _, c := range calls {
		switch c.State {
		case agentbus.CallSettled:
			cost += c.Cost
			took = append(took, c.Ended.Sub(c.Began))
			if c.Status < http.StatusBadRequest && c.Ended.After(rec.LastSuccess) {
				rec.LastSuccess = c.Ended
			}
		case agentbus.CallVoided:
			if !faultless(c) {
				codes[c.Code]++
			}
		case agentbus.CallRefused:
			codes[c.Code] += 1 + c.Repeats
		case agentbus.CallExecuting, agentbus.CallPassed:
			continue
		}
		rec.Calls++
	}
	if len(took) > 0 {
		rec.Turn = cost / agentbus.Micros(len(took))
	}
	p := percentiles(took, 50, 95, 99)
	rec.P50, rec.P95, rec.P99 = p[0], p[1], p[2]
	for code, n := range codes {
		rec.Errors = append(rec.Errors, console.CodeCount{Code: code, Count: n})
	}
	slices.SortFunc(rec.Errors, func(a, b console.CodeCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Code, b.Code))
	})
	return rec
}

// An agentRecord is the record of one agent, by name.
type agentRecord struct {
	Agent string `json:"agent"`
	console.Record
}

func (a *API) listRecords(w http.ResponseWriter, r *http.Request) error {
	p, q, err := pageOf(r, "run", "window")
	if err != nil {
		return err
	}
	l, err := lookOf(q)
	if err != nil {
		return err
	}
	found, err := a.records(r, l)
	if err != nil {
		return err
	}
	list := make([]agentRecord, 0, len(found))
	for name, rec := range found {
		list = append(list, agentRecord{name, rec})
	}
	slices.SortFunc(list, func(x, y agentRecord) int { return cmp.Compare(x.Agent, y.Agent) })
	page, err := cut(all(list), p.limit, p.after, func(_ int, v agentRecord) string { return v.Agent })
	return writePage(w, page, err)
}

func (a *API) listRemarks(w http.ResponseWriter, r *http.Request) error {
	limit, after, q, err := numberedPage(r, "run", "window")
	if err != nil {
		return err
	}
	look, err := lookOf(q)
	if err != nil {
		return err
	}
	calls, _, err := a.calls(r, look)
	if err != nil {
		return err
	}
	l, err := cut(all(remarksOf(calls)), limit, after, ordinal)
	return writePage(w, l, err)
}

// remarksOf returns what an operator should know of calls, newest first (U15).
func remarksOf(calls []agentbus.CallRecord) (found []console.Remark) {
	for i := range calls {
		c := &calls[i]
		kind, remarkable := remarkOf(c)
		if !remarkable {
			continue
		}
		found = append(found, console.Remark{
			Kind: kind, At: c.Began, Run: c.Run, Turn: c.TurnKey.ID, Agent: c.Agent, Caller: c.Caller, State: c.State, Message: c.Message, Count: 1 + c.Repeats,
		})
	}
	slices.SortStableFunc(found, func(a, b console.Remark) int { return b.At.Compare(a.At) })
	return found
}

// remarkOf says what is remarkable of a call.
func remarkOf(c *agentbus.CallRecord) (kind console.RemarkKind, remarkable bool) {
	switch {
	case wentRound(c):
		return console.RemarkCycle, true
	case slices.Contains(c.Notes, "depth_regression"):
		return console.RemarkDepth, true
	case slices.Contains(c.Notes, "forwarded_authorization_ignored"), c.Code == agentbus.CodeUntrustedForwarder:
		return console.RemarkForwarded, true
	}
	return "", false
}
