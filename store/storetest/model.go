package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
)

var random = map[string]func(*place){
	"AnyInterleavingChargesOnceAndNeverOvershoots": anyInterleavingChargesOnceAndNeverOvershoots,
}

// A model is what the ledger must be after any sequence of steps: the plainest
// ledger that keeps the promises.
type model struct {
	*rapid.T

	p        *place
	run      agentbus.RunID
	calls    map[agentbus.Digest]*modelCall
	accounts map[string]*agentbus.BudgetState
	charged  map[agentbus.Payer]agentbus.Micros
	entries  map[agentbus.Payer]int
}

// A modelCall is one key, as it must be.
type modelCall struct {
	record agentbus.CallRecord
	body   string
	hold   agentbus.Hold // zero once it is given back
}

// I1, I4, I5, G20, G24, G26, G27: whatever the order of reservations, ends,
// retries, take-overs and deaths.
func anyInterleavingChargesOnceAndNeverOvershoots(p *place) {
	var rounds atomic.Int64
	rapid.Check(p.t, func(t *rapid.T) {
		m := &model{
			T: t, p: p, run: agentbus.RunID("run_" + strconv.FormatInt(rounds.Add(1), 10)), calls: map[agentbus.Digest]*modelCall{},
			accounts: map[string]*agentbus.BudgetState{}, charged: map[agentbus.Payer]agentbus.Micros{}, entries: map[agentbus.Payer]int{},
		}
		steps := []func(){m.reserve, m.reserve, m.reserve, m.settle, m.settle, m.void, m.die}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			steps[rapid.IntRange(0, len(steps)-1).Draw(t, "step")]()
			m.budgets()
		}
		m.check()
	})
	p.verify()
}

// draw returns a request: two payers, three turns, three owners, two bodies.
func (m *model) draw() agentbus.Reservation {
	r := reservation(m.run, rapid.IntRange(0, 2).Draw(m.T, "turn"))
	r.Call.Payer = agentbus.Payer(string(m.run) + rapid.SampledFrom([]string{"/alice", "/bob"}).Draw(m.T, "payer"))
	r.Key = r.Call.Hash()
	r.Call.Owner = rapid.SampledFrom([]string{"host:1", "host:2", "host:3"}).Draw(m.T, "owner")
	r.TakeOver = rapid.SampledFrom([]string{"", "host:1", "host:2"}).Draw(m.T, "take over")
	if rapid.IntRange(0, 5).Draw(m.T, "other body") == 0 {
		r.Call.Digest = agentbus.Digest{9}
	}
	amount := agentbus.Micros(rapid.IntRange(0, 400).Draw(m.T, "amount"))
	all := []agentbus.Budget{strict(string(m.run), 900), {Account: string(r.Call.Payer), Limit: 500}, {Account: string(m.run) + "/turns", Limit: 1 << 40, Calls: 2}}
	r.Hold = agentbus.Hold{Amount: amount, Budgets: all[:rapid.IntRange(0, len(all)).Draw(m.T, "budgets")]}
	return r
}

func (m *model) account(name string) *agentbus.BudgetState {
	if m.accounts[name] == nil {
		m.accounts[name] = &agentbus.BudgetState{Account: name}
	}
	return m.accounts[name]
}

// release gives back what c holds, and spends cost where it was settled.
func (m *model) release(c *modelCall, settled bool, cost agentbus.Micros) {
	for _, b := range c.hold.Budgets {
		a := m.account(b.Account)
		a.Held -= c.hold.Amount
		if a.Spent += cost; !settled {
			a.Calls--
		}
	}
	c.hold = agentbus.Hold{}
}

// fits says what a reservation that would execute comes to, and takes its hold.
func (m *model) fits(c *modelCall, hold agentbus.Hold) bool {
	before := c.hold
	m.release(c, false, 0)
	for _, b := range hold.Budgets {
		if ok, _ := b.Fits(*m.account(b.Account), hold.Amount, began); ok {
			continue
		}
		m.take(c, before)
		return false
	}
	m.take(c, hold)
	return true
}

func (m *model) take(c *modelCall, hold agentbus.Hold) {
	for _, b := range hold.Budgets {
		a := m.account(b.Account)
		a.Held += hold.Amount
		a.Calls++
		a.Opened = began
	}
	c.hold = hold
}

// expect says what r must come to.
func (m *model) expect(r agentbus.Reservation) (agentbus.Outcome, *modelCall) {
	c := m.calls[r.Key]
	switch {
	case c == nil:
		c = &modelCall{}
	case c.record.State == agentbus.CallVoided:
	case c.record.Digest != r.Call.Digest:
		return agentbus.OutcomeMismatch, c
	case c.record.State == agentbus.CallSettled:
		return agentbus.OutcomeSettled, c
	case c.record.Owner != r.TakeOver:
		return agentbus.OutcomeInFlight, c
	}
	if !m.fits(c, r.Hold) {
		return agentbus.OutcomeShort, c
	}
	return agentbus.OutcomeExecute, c
}

func (m *model) reserve() {
	r := m.draw()
	want, c := m.expect(r)
	got, err := m.p.Reserve(m.p.t.Context(), r)
	if err != nil || got.Outcome != want {
		m.Fatalf("reserve: outcome %d, want %d: %v", got.Outcome, want, err)
	}
	switch want {
	case agentbus.OutcomeExecute:
		if got.Call.Attempts != c.record.Attempts+1 {
			m.Fatalf("attempt %d follows %d", got.Call.Attempts, c.record.Attempts)
		}
		c.record = got.Call
		m.calls[r.Key] = c
	case agentbus.OutcomeSettled:
		if string(got.Reply.Body) != c.body || got.Call.Payer != r.Call.Payer { // I4, I7
			m.Fatalf("%s got the answer %q, want %q", r.Call.Payer, got.Reply.Body, c.body)
		}
	default:
		if got.Reply != nil {
			m.Fatalf("outcome %d came with an answer", want)
		}
	}
}

// attempt draws an attempt of a known call, which may be over, and reports
// whether it executes.
func (m *model) attempt() (c *modelCall, number int, executes bool) {
	if len(m.calls) == 0 {
		return nil, 0, false
	}
	keys := make([]agentbus.Digest, 0, len(m.calls))
	for key := range m.calls {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b agentbus.Digest) int { return int(m.calls[a].record.ID - m.calls[b].record.ID) })
	c = m.calls[rapid.SampledFrom(keys).Draw(m.T, "call")]
	number = c.record.Attempts - rapid.IntRange(0, 1).Draw(m.T, "attempts before")
	return c, number, c.record.State == agentbus.CallExecuting && number == c.record.Attempts
}

// ended checks the end of an attempt and enters it.
func (m *model) ended(c *modelCall, err error, executes bool, state agentbus.CallState) bool {
	if code := agentbus.CodeOf(err); executes && err != nil || !executes && code != agentbus.CodeLeaseLost {
		m.Fatalf("the end of an attempt, executing %v: %v", executes, err)
	}
	if executes {
		c.record.State = state
		m.entries[c.record.Payer]++
	}
	return executes
}

func (m *model) settle() {
	c, number, executes := m.attempt()
	if c == nil {
		return
	}
	body := fmt.Sprintf("answer %d of call %d to %s", number, c.record.ID, c.record.Payer)
	s := settlement(c.record, body)
	s.Attempt, s.Hold = number, c.hold
	s.Cost = agentbus.Micros(rapid.IntRange(0, int(c.hold.Amount)).Draw(m.T, "cost"))
	if m.ended(c, m.p.Settle(m.p.t.Context(), s), executes, agentbus.CallSettled) {
		c.body = body
		m.charged[c.record.Payer] += s.Cost
		m.release(c, true, s.Cost)
	}
}

func (m *model) void() {
	c, number, executes := m.attempt()
	if c == nil {
		return
	}
	v := agentbus.Voiding{ID: c.record.ID, Attempt: number, Unbilled: 3, Hold: c.hold, Ended: began.Add(time.Second)}
	if m.ended(c, m.p.Void(m.p.t.Context(), v), executes, agentbus.CallVoided) {
		m.release(c, false, 0)
	}
}

// die releases what the calls of one process hold.
func (m *model) die() {
	dead := rapid.SampledFrom([]string{"host:1", "host:2", "host:3"}).Draw(m.T, "dead")
	if _, err := m.p.ReleaseDead(m.p.t.Context(), func(owner string) bool { return owner != dead }); err != nil {
		m.Fatalf("release: %v", err)
	}
	for _, c := range m.calls {
		if c.record.State == agentbus.CallExecuting && c.record.Owner == dead {
			m.release(c, false, 0)
		}
	}
}

// budgets checks every account, and that the strict one is never overshot.
func (m *model) budgets() {
	for name, want := range m.accounts {
		got, err := m.p.BudgetStates(m.p.t.Context(), []string{name})
		if err != nil || len(got) != 1 || !got[0].Opened.Equal(want.Opened) {
			m.Fatalf("budget: %+v, want %+v: %v", got, want, err)
		}
		got[0].Opened = want.Opened
		if got[0] != *want {
			m.Fatalf("budget: %+v, want %+v", got[0], *want)
		}
		if name == string(m.run) && want.Spent+want.Held > 900 { // I5
			m.Fatalf("the strict budget is overshot: %+v", *want)
		}
	}
}

// check holds every payer's account against the model.
func (m *model) check() {
	for payer, n := range m.entries {
		entries, err := m.p.Entries(m.p.t.Context(), payer, 0, 1000)
		if err != nil || len(entries) != n {
			m.Fatalf("%s has %d entries, want %d: %v", payer, len(entries), n, err)
		}
		var sum agentbus.Micros
		keys := map[agentbus.Digest]bool{}
		for _, e := range entries {
			if e.Kind == agentbus.EntryCharge && keys[e.Key] {
				m.Fatalf("a key is charged twice: %+v", e) // I1
			}
			keys[e.Key] = keys[e.Key] || e.Kind == agentbus.EntryCharge
			sum += e.Amount
		}
		balances, err := m.p.Balances(m.p.t.Context(), payer)
		if err != nil || len(balances) != 1 || balances[0].Charged != sum || sum != m.charged[payer] {
			m.Fatalf("%s: balance %+v, the entries sum up to %d, the settlements to %d: %v", payer, balances, sum, m.charged[payer], err)
		}
	}
}
