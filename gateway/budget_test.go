package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// under makes a bus's configuration one of these budgets.
func under(rules ...gateway.BudgetRule) func(*gateway.Config) {
	return func(c *gateway.Config) { c.Budgets = rules }
}

// total bounds everything a payer ever spends.
func total(limit agentbus.Micros, strict bool) gateway.BudgetRule {
	return gateway.BudgetRule{Period: gateway.PeriodTotal, USD: &limit, Strict: strict}
}

// state returns the state of an account, which must keep its promise.
func (b *bus) state(account string) agentbus.BudgetState {
	b.t.Helper()
	states, err := b.store.BudgetStates(b.t.Context(), []string{account})
	if err != nil {
		b.t.Fatal(err)
	}
	return states[0]
}

// waiting waits until n calls stand in line.
func (b *bus) waiting(n int) {
	b.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for b.Waiting() != n {
		select {
		case <-tick.C:
		case <-late:
			b.t.Fatalf("%d calls wait, want %d", b.Waiting(), n)
		}
	}
}

// priceOf makes an agent's calls cost this much each.
func priceOf(a *agent, call agentbus.Micros) *agent {
	a.Price = agentbus.Price{Call: call}
	return a
}

// TestBudgetAccounts: G27, whose account a call is on. Windows are of UTC, and no
// two accounts have one name, whatever is in an id.
func TestBudgetAccounts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 0, 30, 0, 0, time.FixedZone("east", 3600)) // 23:30 UTC the day before
	for want, r := range map[string]gateway.BudgetRule{
		"payer/alice/day/2026-11-21":              {Period: gateway.PeriodDay},
		"payer/alice/hour/2026-11-21T23":          {Period: gateway.PeriodHour},
		"payer/alice/month/2026-11":               {Period: gateway.PeriodMonth, Payer: "alice"},
		"payer/alice/total":                       {Period: gateway.PeriodTotal},
		"payer/alice/run/r1":                      {Period: gateway.PeriodRun},
		"caller/relay/total":                      {Period: gateway.PeriodTotal, Caller: "relay"},
		"caller/relay/payer/alice/day/2026-11-21": {Period: gateway.PeriodDay, Caller: "relay", Payer: "alice"},
		"caller/relay/payer/alice/run/r1":         {Period: gateway.PeriodRun, Caller: "relay"},
	} {
		if got := r.Account("alice", "relay", "r1", at); got != want {
			t.Errorf("account %s, want %s", got, want)
		}
	}
	run := gateway.BudgetRule{Period: gateway.PeriodRun}
	if a, b := run.Account("a/run/b", "", "c", at), run.Account("a", "", "b/run/c", at); a == b {
		t.Errorf("two runs of two payers have the account %s", a)
	}
}

// TestWorstCase: G27, what a strict budget holds for a call before it is made;
// what nobody knows is refused, and the refusal names the setting.
func TestWorstCase(t *testing.T) {
	t.Parallel()
	const unknown = -1
	tokens := agentbus.Price{Input: 3_000_000, Output: 15_000_000, Call: 7}
	for name, c := range map[string]struct {
		change func(*gateway.Target)
		route  string // "": chat completions
		more   string // of the request's body
		out    agentbus.Micros
		whole  agentbus.Micros // instead of 3 micros a byte, 15 an output token and 7
	}{
		"max_tokens":             {more: `,"max_tokens":20`, out: 20},
		"max_completion_tokens":  {more: `,"max_completion_tokens":20,"max_tokens":null`, out: 20},
		"both: the larger":       {more: `,"max_completion_tokens":10,"max_tokens":20`, out: 20},
		"n answers":              {more: `,"max_tokens":20,"n":3`, out: 60},
		"responses":              {route: "/v1/responses", more: `,"max_output_tokens":20`, out: 20},
		"of another dialect":     {more: `,"max_output_tokens":20`, whole: unknown},
		"no maximum":             {whole: unknown},
		"below zero":             {more: `,"max_tokens":-1`, whole: unknown},
		"no whole number":        {more: `,"max_tokens":1e3`, whole: unknown},
		"more than can be":       {more: `,"max_tokens":99999999999999999999`, whole: unknown},
		"one of both unreadable": {more: `,"max_completion_tokens":20,"max_tokens":"x"`, whole: unknown},
		"n unreadable":           {more: `,"max_tokens":20,"n":0`, whole: unknown},
		"a key but for case":     {more: `,"max_tokens":20,"N":3`, whole: unknown},
		"any other API":          {route: "/agents/critic/v1/other", more: `,"max_tokens":20`, whole: unknown},
		"max_cost_usd":           {change: func(t *gateway.Target) { t.MaxCost = new(agentbus.Micros(11)) }, whole: 11},
		"max_cost_usd, reported": {change: func(t *gateway.Target) { t.UsageCost, t.MaxCost = true, new(agentbus.Micros(11)) }, whole: 11},
		"reported":               {change: func(t *gateway.Target) { t.UsageCost = true }, more: `,"max_tokens":20`, whole: unknown},
		"per call":               {change: func(t *gateway.Target) { t.Price = agentbus.Price{Call: 5} }, whole: 5},
		"no price":               {change: func(t *gateway.Target) { t.Price = agentbus.Price{} }, more: `,"max_tokens":20`, whole: unknown},
		"dear when cached": {change: func(t *gateway.Target) {
			t.Price = agentbus.Price{Input: 1, Cached: 3_000_000, Output: 15_000_000, Call: 7}
		}, more: `,"max_tokens":20`, out: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, "critic", nil)
			if a.Price = tokens; c.change != nil {
				c.change(a.Target)
			}
			b := newBus(t, under(total(0, true)), a)
			body := strings.TrimSuffix(ask("critic"), "}") + c.more + "}"
			route := c.route
			if route == "" {
				route = chatRoute
			}
			got := b.send(http.MethodPost, route, body, asAlice)
			refused(t, name, got, http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
			amount := c.whole
			if amount == 0 {
				amount = agentbus.Micros(3*len(body)) + 15*c.out + 7
			}
			want, next := "this call can cost $"+amount.USD(), "raise the budget"
			if amount == unknown {
				want, next = "what a call of agent critic can cost is not known", "max_cost_usd"
			}
			if said := gjson.Get(got.body, "error.message").Str; !strings.Contains(said, want) || !strings.Contains(gjson.Get(got.body, "error.explain.next").Str, next) {
				t.Errorf("%s\nwant %q and %q", got.body, want, next)
			}
			if a.executions() != 0 {
				t.Error("the agent was called")
			}
		})
	}
}

// TestFreeCallsNeedNoBudget: G27, a call that is known to cost nothing passes an
// exhausted budget, and so does one of an agent of this process.
func TestFreeCallsNeedNoBudget(t *testing.T) {
	t.Parallel()
	free, here := newAgent(t, "free", nil), newAgent(t, "here", nil)
	free.Priced, here.Local = true, true
	b := newBus(t, under(total(0, true)), free, here)
	for _, name := range []string{"free", "here"} {
		if got := b.call(name); got.status != http.StatusOK {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestBudgetRefusal: G27 and P12, what a refused caller reads: what is left, of
// what, whose; the repeats of one turn are one record of amount 0, and a replay
// needs no budget.
func TestBudgetRefusal(t *testing.T) {
	t.Parallel()
	a := priceOf(newAgent(t, "critic", nil), 400_000)
	b := newBus(t, under(total(1_000_000, true)), a)
	first := b.call("critic", turn("r", "t1")...)
	if got := b.call("critic", turn("r", "t2")...); first.status != http.StatusOK || got.status != http.StatusOK {
		t.Fatal(first, got)
	}
	for range 3 {
		got := b.call("critic", turn("refused", "t3")...)
		refused(t, "the third", got, http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
		want := map[string]any{"rule": "G27", "observed": "0.200000", "limit": "1.000000", "next": "ask the operator to raise the budget"}
		if diff := cmp.Diff(want, gjson.Get(got.body, "error.explain").Value()); diff != "" {
			t.Errorf("explain (-want +got):\n%s", diff)
		}
		if said, want := gjson.Get(got.body, "error.message").Str, "the budget of payer alice has $0.200000 left of $1.000000, and this call can cost $0.400000"; said != want {
			t.Errorf("message %q, want %q", said, want)
		}
	}
	r := b.await("refused", func(c []agentbus.CallRecord) bool { return len(c) == 1 && c[0].Repeats == 2 })[0]
	if r.State != agentbus.CallRefused || r.Cost != 0 || r.Code != agentbus.CodeBudgetExceeded {
		t.Errorf("recorded as %+v", r)
	}
	same(t, "replay", first, b.call("critic", turn("r", "t1")...))
	if got := b.send(http.MethodPost, chatRoute, ask("critic"), asBob); got.status != http.StatusOK {
		t.Errorf("another payer has a budget of its own: %v", got)
	}
	if s := b.state("payer/alice/total"); s.Spent != 800_000 || s.Held != 0 || s.Calls != 2 {
		t.Errorf("%+v", s)
	}
}

// TestBudgetScopes: G27, budgets per run, per payer and per caller, of money,
// calls and time; each call is held against all that cover it.
func TestBudgetScopes(t *testing.T) {
	t.Parallel()
	day := func(r gateway.BudgetRule) gateway.BudgetRule { r.Period = gateway.PeriodDay; return r }
	run := func(r gateway.BudgetRule) gateway.BudgetRule { r.Period = gateway.PeriodRun; return r }
	for name, c := range map[string]struct {
		rules []gateway.BudgetRule
		said  string // of the refusal
		calls string // each: a, b for alice or bob, r for the relay on alice's bill; then the run; capital: refused
	}{
		"calls of a run":          {[]gateway.BudgetRule{run(gateway.BudgetRule{Calls: 2})}, "the budget of payer alice for run run-1 has 0 calls left of 2", "a1 a1 A1 a2 b1 R1"},
		"payer by name":           {[]gateway.BudgetRule{day(gateway.BudgetRule{Payer: "alice", USD: new(agentbus.Micros(5)), Strict: true})}, "the budget of payer alice for 2", "a1 A2 R3 b1 b1"},
		"a name goes before all":  {[]gateway.BudgetRule{day(gateway.BudgetRule{USD: new(agentbus.Micros(5)), Strict: true}), day(gateway.BudgetRule{Payer: "alice", USD: new(agentbus.Micros(15)), Strict: true})}, "", "a1 a1 r1 A1 b1 B1"},
		"caller":                  {[]gateway.BudgetRule{day(gateway.BudgetRule{Caller: "relay", USD: new(agentbus.Micros(5)), Strict: true})}, "the budget of caller relay for 2", "r1 R2 a1 a2"},
		"caller on a payer":       {[]gateway.BudgetRule{day(gateway.BudgetRule{Caller: "relay", Payer: "alice", Calls: 1})}, "the budget of caller relay at the cost of alice for 2", "r1 R1 a1"},
		"run and day":             {[]gateway.BudgetRule{run(gateway.BudgetRule{USD: new(agentbus.Micros(5)), Strict: true}), day(gateway.BudgetRule{Calls: 2})}, "", "a1 A1 a2 A3 b1"},
		"soft":                    {[]gateway.BudgetRule{day(gateway.BudgetRule{USD: new(agentbus.Micros(6))})}, "the budget of payer alice for 2", "a1 a1 A1"},
		"soft: nothing":           {[]gateway.BudgetRule{day(gateway.BudgetRule{USD: new(agentbus.Micros(0))})}, "the budget of payer alice for 2", "A1"},
		"wall time":               {[]gateway.BudgetRule{run(gateway.BudgetRule{WallTime: time.Nanosecond})}, "the budget of payer alice for run run-1 has no time left of 1ns", "a1 A1 a2"},
		"wall time is not up yet": {[]gateway.BudgetRule{run(gateway.BudgetRule{WallTime: time.Hour})}, "", "a1 a1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBus(t, under(c.rules...), priceOf(newAgent(t, "critic", nil), 5))
			for i, what := range strings.Fields(c.calls) {
				who := map[string][]string{"a": {asAlice}, "b": {asBob}, "r": {asRelay, forAlice}}[strings.ToLower(what[:1])]
				headers := append(turn("run-"+what[1:], what+strconv.Itoa(i)), who...)
				got := b.send(http.MethodPost, chatRoute, ask("critic"), headers...)
				if what[0] >= 'a' {
					if got.status != http.StatusOK {
						t.Errorf("call %d, %s: %v", i, what, got)
					}
					continue
				}
				refused(t, what, got, http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
				if said := gjson.Get(got.body, "error.message").Str; !strings.HasPrefix(said, c.said) {
					t.Errorf("call %d, %s: %s, want %s…", i, what, said, c.said)
				}
			}
		})
	}
}

// TestChargeIsCapped: G27, a call is charged the most that a call of its agent can
// cost at most, under any budget and under none, and under a strict one what was
// held for it; what it cost beyond is told, and paid by nobody.
func TestChargeIsCapped(t *testing.T) {
	t.Parallel()
	maximum := new(agentbus.Micros(600))
	for name, c := range map[string]struct {
		budgets []gateway.BudgetRule
		most    *agentbus.Micros
		want    agentbus.Micros
	}{
		"a maximum and a strict budget": {[]gateway.BudgetRule{total(10_000, true)}, maximum, 600},
		"a maximum and a soft budget":   {[]gateway.BudgetRule{total(10_000, false)}, maximum, 600},
		"a maximum and no budget":       {nil, maximum, 600},
		"no maximum and a soft budget":  {[]gateway.BudgetRule{total(10_000, false)}, nil, priced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, "critic", nil)
			a.Price, a.MaxCost = price, c.most
			s := newAgent(t, "streamer", streamWith(stream))
			s.Price, s.MaxCost = price, c.most
			b, want := newBus(t, under(c.budgets...), a, s), c.want
			got, streamed := b.call("critic", turn("r", "t")...), b.stream("streamer", turn("s", "t")...)
			if got.header.Get("X-Agentbus-Cost-Usd") != want.USD() || streamed.trailer.Get("X-Agentbus-Cost-Usd") != want.USD() {
				t.Errorf("told %q and %q, want %s", got.header.Get("X-Agentbus-Cost-Usd"), streamed.trailer.Get("X-Agentbus-Cost-Usd"), want.USD())
			}
			for _, run := range []string{"r", "s"} {
				if r := b.one(run, agentbus.CallSettled); r.Cost != want || r.Unbilled != priced-want {
					t.Errorf("charged %d, unbilled %d, want %d and %d", r.Cost, r.Unbilled, want, priced-want)
				}
			}
			if s := b.state("payer/alice/total"); c.budgets != nil && (s.Spent != 2*want || s.Held != 0) {
				t.Errorf("%+v", s)
			}
			if logged := strings.Contains(b.log.text(), `"unbilled_micros":7`); logged != (want < priced) {
				t.Errorf("the excess is logged: %t", logged)
			}
		})
	}
}

// TestSoftUnknownCost: G27, a soft budget lets a call pass whose cost nobody
// knows, until it is spent.
func TestSoftUnknownCost(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", answerWith(http.StatusOK, `{"choices":[],"usage":{"cost":0.000006}}`))
	a.UsageCost = true
	b := newBus(t, under(total(10, false)), a)
	for range 2 {
		if got := b.call("critic"); got.status != http.StatusOK {
			t.Fatal(got)
		}
	}
	refused(t, "spent", b.call("critic"), http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
}

// TestBudgetOutlivesTheProcess: G27 and I2, what is spent stays spent, and what a
// process held that is gone is free again.
func TestBudgetOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bus.db")
	a := priceOf(newAgent(t, "critic", nil), 5)
	store := openStore(t, path)
	before := busOver(t, store, path, under(total(15, true)), a)
	if got := before.call("critic"); got.status != http.StatusOK {
		t.Fatal(got)
	}
	// A process that dies with a call in flight.
	key := agentbus.TurnKey{Payer: "alice", Agent: "critic", Run: "lost", ID: "t"}
	got, err := store.Reserve(t.Context(), agentbus.Reservation{
		Call: agentbus.CallRecord{TurnKey: key, Owner: "dead", Began: time.Now()}, Key: key.Hash(),
		Hold: agentbus.Hold{Amount: 10, Budgets: []agentbus.Budget{{Account: "payer/alice/total", Limit: 15, Strict: true}}},
	})
	if err != nil || got.Outcome != agentbus.OutcomeExecute {
		t.Fatal(got, err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = openStore(t, path)
	impatient := busOver(t, store, path, func(c *gateway.Config) { under(total(15, true))(c); c.BudgetWait = -1 }, a)
	refused(t, "held by the dead", impatient.call("critic"), http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
	b := busOver(t, store, path, func(c *gateway.Config) {
		under(total(15, true))(c)
		c.BudgetWait = time.Hour
		c.ReleaseDead = func(ctx context.Context) {
			if _, err := store.ReleaseDead(ctx, func(owner string) bool { return owner != "dead" }); err != nil {
				t.Error(err)
			}
		}
	}, a)
	for range 2 {
		if got := b.call("critic"); got.status != http.StatusOK {
			t.Error(got)
		}
	}
	refused(t, "spent before and after", b.call("critic"), http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
}

// A gate is an agent whose calls wait until the test lets each go.
type gate struct {
	*agent
	open chan struct{}
}

func newGate(t *testing.T, name string) gate {
	t.Helper()
	g := gate{open: make(chan struct{})}
	g.agent = newAgent(t, name, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-g.open:
		case <-r.Context().Done():
		case <-time.After(patience):
		}
		answerWith(http.StatusOK, completion)(w, r)
	})
	g.MaxCost = new(agentbus.Micros(60))
	return g
}

// TestWaitingInLine: G27, a call that does not fit only because of what calls in
// flight hold waits for them; who came first goes first, though a smaller call
// behind would fit at once. An answer from memory does not wait.
func TestWaitingInLine(t *testing.T) {
	t.Parallel()
	g := newGate(t, "gate")
	g.Price = agentbus.Price{Call: 10}
	big, small := priceOf(newAgent(t, "big", nil), 50), priceOf(newAgent(t, "small", nil), 30)
	b := newBus(t, func(c *gateway.Config) { under(total(100, true))(c); c.BudgetWait = time.Hour }, g.agent, big, small)
	answers := make(chan answer, 3)
	call := func(name, run string) { go func() { answers <- b.call(name, turn(run, "t")...) }() }
	call("gate", "first")
	g.next(t)
	call("big", "r")
	b.waiting(1)
	call("small", "r2")
	b.waiting(2)
	if big.executions()+small.executions() > 0 {
		t.Error("a call did not wait")
	}
	g.open <- struct{}{}
	for range 3 {
		if got := <-answers; got.status != http.StatusOK {
			t.Error(got)
		}
	}
	if first, second := b.one("r", agentbus.CallSettled), b.one("r2", agentbus.CallSettled); first.ID > second.ID {
		t.Error("the second in line went first")
	}
	if s := b.state("payer/alice/total"); s.Spent != 90 || s.Held != 0 || b.Waiting() != 0 || b.Holding() != 0 {
		t.Errorf("%+v; %d wait, %d hold", s, b.Waiting(), b.Holding())
	}
}

// TestPeriodBeginsWhileInLine: G27, those who wait when another period begins are
// admitted in it, in their order; what was held before it is spent where it was held.
func TestPeriodBeginsWhileInLine(t *testing.T) {
	t.Parallel()
	g := newGate(t, "gate")
	g.Price = agentbus.Price{Call: 60}
	one, two := priceOf(newAgent(t, "one", nil), 60), priceOf(newAgent(t, "two", nil), 40)
	day := gateway.BudgetRule{Period: gateway.PeriodDay, USD: new(agentbus.Micros(100)), Strict: true}
	b := newBus(t, func(c *gateway.Config) { under(day)(c); c.BudgetWait = time.Hour }, g.agent, one, two)
	var now atomic.Pointer[time.Time]
	b.SetClock(func() time.Time { return *now.Load() })
	midnight := time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)
	now.Store(new(midnight.Add(-time.Second)))
	first, answers := make(chan answer, 1), make(chan answer, 2)
	go func() { first <- b.call("gate") }()
	g.next(t)
	for i, name := range []string{"one", "two"} {
		go func() { answers <- b.call(name, turn(name, "t")...) }()
		b.waiting(i + 1)
	}
	now.Store(&midnight)
	for range 2 {
		if got := <-answers; got.status != http.StatusOK {
			t.Error(got)
		}
	}
	if b.one("one", agentbus.CallSettled).ID > b.one("two", agentbus.CallSettled).ID {
		t.Error("the second in line went first")
	}
	refused(t, "beside them", b.call("two"), http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
	g.open <- struct{}{}
	<-first
	for account, spent := range map[string]agentbus.Micros{"payer/alice/day/2028-02-28": 60, "payer/alice/day/2028-02-29": 100} {
		if s := b.state(account); s.Spent != spent || s.Held != 0 {
			t.Errorf("%+v, want %d spent", s, spent)
		}
	}
}

// TestRefusalTellsTheNextPeriod: G27, P12, a budget of a period is there again when the
// next one begins: its refusal says when, unless the call would not fit into that.
func TestRefusalTellsTheNextPeriod(t *testing.T) {
	t.Parallel()
	at, amount := time.Date(2028, 2, 29, 13, 14, 15, 0, time.FixedZone("east", 9*3600)), new(agentbus.Micros(100))
	for name, c := range map[string]struct {
		rule gateway.BudgetRule
		want string // of what the caller may do next
	}{
		"hour":      {gateway.BudgetRule{Period: gateway.PeriodHour, USD: amount, Strict: true}, "raise the budget, or send it again when the next period begins, at 2028-02-29T05:00:00Z"},
		"day":       {gateway.BudgetRule{Period: gateway.PeriodDay, USD: amount}, "raise the budget, or send it again when the next period begins, at 2028-03-01T00:00:00Z"},
		"month":     {gateway.BudgetRule{Period: gateway.PeriodMonth, Calls: 2}, "raise calls of this budget, or send it again when the next period begins, at 2028-03-01T00:00:00Z"},
		"total":     {gateway.BudgetRule{Period: gateway.PeriodTotal, USD: amount, Strict: true}, "raise the budget"},
		"run":       {gateway.BudgetRule{Period: gateway.PeriodRun, USD: amount, Strict: true}, "raise the budget"},
		"too small": {gateway.BudgetRule{Period: gateway.PeriodDay, USD: new(agentbus.Micros(59)), Strict: true}, "raise the budget"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBus(t, under(c.rule), priceOf(newAgent(t, "critic", nil), 60))
			b.SetClock(func() time.Time { return at })
			var got answer
			for range 4 { // the last is refused by what is remembered
				got = b.call("critic", "x-tangle-runid: run-1")
			}
			refused(t, name, got, http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
			if next := gjson.Get(got.body, "error.explain.next").Str; !strings.HasSuffix(next, c.want) || got.header.Get("Retry-After") != "" {
				t.Errorf("next %q, want %q at its end; Retry-After %q", next, c.want, got.header.Get("Retry-After"))
			}
		})
	}
}

// TestReplayDoesNotWait: G23, an answer from memory passes those who wait.
func TestReplayDoesNotWait(t *testing.T) {
	t.Parallel()
	g := newGate(t, "gate")
	g.Price = agentbus.Price{Call: 10}
	big := priceOf(newAgent(t, "big", nil), 30)
	b := newBus(t, func(c *gateway.Config) { under(total(100, true))(c); c.BudgetWait = time.Hour }, g.agent, big)
	first := b.call("big", turn("r", "t1")...)
	answers := make(chan answer, 2)
	go func() { answers <- b.call("gate", turn("r", "t2")...) }()
	g.next(t)
	go func() { answers <- b.call("big", turn("r", "t3")...) }()
	b.waiting(1)
	same(t, "while another waits", first, b.call("big", turn("r", "t1")...))
	g.open <- struct{}{}
	<-answers
	<-answers
}

// TestWaitIsBounded: G27, who waits is refused after BudgetWait, and gone when its
// caller is.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{false, true} {
		g := newGate(t, "gate")
		wait := 20 * time.Millisecond
		if leaves {
			wait = time.Hour
		}
		b := newBus(t, func(c *gateway.Config) { under(total(100, true))(c); c.BudgetWait = wait }, g.agent)
		first := make(chan answer, 1)
		go func() { first <- b.call("gate") }()
		g.next(t)
		if leaves {
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.url+chatRoute, strings.NewReader(ask("gate")))
				r.Header = headerOf(append(turn("left", "t"), asAlice))
				resp, err := b.client.Do(r)
				if err == nil {
					_ = resp.Body.Close()
				}
			}()
			b.waiting(1)
			cancel()
			<-gone
			b.waiting(0)
			b.serving(1)
			if r := b.calls("left"); len(r) > 0 {
				t.Errorf("who left is recorded as %+v", r)
			}
		} else {
			got := b.call("gate")
			refused(t, "in vain", got, http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
			if want := "($0.000060 are held by calls in flight)"; !strings.Contains(got.body, want) {
				t.Errorf("%s, want %s", got.body, want)
			}
		}
		g.open <- struct{}{}
		if got := <-first; got.status != http.StatusOK {
			t.Error(got)
		}
	}
}

// TestNestedCallDoesNotWaitForItsParent: G27, a run's budget covers every nested
// hop; a call does not wait for what the calls around it hold, which wait for it.
func TestNestedCallDoesNotWaitForItsParent(t *testing.T) {
	t.Parallel()
	var b *bus
	inner := priceOf(newAgent(t, "inner", nil), 50)
	said := make(chan answer, 4)
	nest := func(name, to string) *agent {
		return newAgent(t, name, func(w http.ResponseWriter, r *http.Request) {
			l, err := agentbus.ParseLineage(r.Header)
			if err != nil {
				t.Error(err)
			}
			next, err := l.Next(l.Turn+".n", agentbus.Speaker(name))
			if err != nil {
				t.Error(err)
			}
			h := http.Header{}
			next.SetHeaders(h)
			req, _ := http.NewRequestWithContext(r.Context(), http.MethodPost, b.url+chatRoute, strings.NewReader(ask(to)))
			req.Header = h
			req.Header.Set("Authorization", "Bearer "+relayKey)
			resp, err := b.client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			body, _ := io.ReadAll(resp.Body)
			said <- answer{resp.StatusCode, resp.Header, nil, string(body), nil}
			answerWith(http.StatusOK, completion)(w, r)
		})
	}
	outer, middle := priceOf(nest("outer", "middle"), 40), priceOf(nest("middle", "inner"), 20)
	b = newBus(t, func(c *gateway.Config) {
		c.Budgets = []gateway.BudgetRule{{Period: gateway.PeriodRun, USD: new(agentbus.Micros(100)), Strict: true}}
		c.BudgetWait, c.MaxDepth = time.Hour, 9
	}, outer, middle, inner)
	if got := b.call("outer", turn("r", "r.t0.x")...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	got := <-said
	refused(t, "the innermost", got, http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
	if want := "the budget of payer alice for run r has $0.000040 left of $0.000100 ($0.000060 are held"; !strings.Contains(got.body, want) {
		t.Errorf("%s, want %s", got.body, want)
	}
	if s := b.state("payer/alice/run/r"); s.Spent != 60 || s.Calls != 2 {
		t.Errorf("the run's account: %+v", s)
	}
}

// TestBudgetRulesAreChecked: New refuses rules that mean nothing.
func TestBudgetRulesAreChecked(t *testing.T) {
	t.Parallel()
	for _, r := range []gateway.BudgetRule{
		{},
		{Period: "week", Calls: 1},
		{Period: gateway.PeriodDay},
		{Period: gateway.PeriodDay, Calls: -1},
		{Period: gateway.PeriodDay, USD: new(agentbus.Micros(-1))},
		{Period: gateway.PeriodDay, WallTime: time.Hour},
	} {
		if _, err := gateway.New(gateway.Config{Budgets: []gateway.BudgetRule{r}}); err == nil || !strings.Contains(fmt.Sprint(err), "budget") && !strings.Contains(fmt.Sprint(err), "wall time") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestNoBudgetInMessages: P19, an id with an at sign is no mention.
func TestBudgetMessageMentionsNobody(t *testing.T) {
	t.Parallel()
	b := newBus(t, under(total(0, true)), priceOf(newAgent(t, "critic", nil), 5))
	got := b.call("critic", turn("run@home", "t")...)
	refused(t, "spent", got, http.StatusPaymentRequired, agentbus.CodeBudgetExceeded)
	if bytes.Contains([]byte(gjson.Get(got.body, "error.message").Str), []byte("@")) {
		t.Error(got.body)
	}
}
