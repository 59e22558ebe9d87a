package postgres

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/agentbus/agentbus"
)

// taken is what a call in flight holds: an amount of each of its accounts. The
// zero taken is nothing.
type taken struct {
	amount   agentbus.Micros
	accounts []string // nil: nothing is held
}

func readTaken(r *row) (t taken) {
	t.amount = r.micros()
	r.json(&t.accounts)
	return t
}

// accountsText returns accounts as they are stored; NULL when there are none.
func accountsText(accounts []string) any {
	if accounts == nil {
		return nil
	}
	b, _ := json.Marshal(accounts) // strings always marshal
	return string(b)
}

// short returns the first budget of the reservation that its call does not fit
// into, nil when it fits into all (G27). freed is what the call itself still
// holds, of an attempt that is over.
func (p *ledgerPage) short(r *agentbus.Reservation, freed taken) *agentbus.Shortage {
	for _, b := range r.Hold.Budgets {
		state := p.accounts[b.Account].BudgetState
		if slices.Contains(freed.accounts, b.Account) {
			state.Held -= freed.amount
			state.Calls--
		}
		if fits, passing := b.Fits(state, r.Hold.Amount, stored(r.Call.Began)); !fits {
			return &agentbus.Shortage{Budget: b, State: state, Passing: passing}
		}
	}
	return nil
}

const stateColumns = "held, spent, calls, opened"

func readState(r *row, account string) agentbus.BudgetState {
	return agentbus.BudgetState{Account: account, Held: r.micros(), Spent: r.micros(), Calls: r.int64(), Opened: r.time()}
}

// take holds what the reservation asks for on behalf of a call.
func (p *ledgerPage) take(k *call, r *agentbus.Reservation) {
	if len(r.Hold.Budgets) == 0 {
		return
	}
	k.held, k.rehold = taken{amount: r.Hold.Amount}, true
	for _, b := range r.Hold.Budgets {
		if slices.Contains(k.held.accounts, b.Account) {
			continue // two bounds of one account hold once
		}
		k.held.accounts = append(k.held.accounts, b.Account)
		a := p.accounts[b.Account]
		a.Held += r.Hold.Amount
		a.Calls++
		if a.Opened.IsZero() {
			a.Opened = stored(r.Call.Began)
		}
		a.changed = true
	}
}

// release gives back what a call held. Where it was settled, cost is spent in
// its place; otherwise the call does not count.
func (p *ledgerPage) release(k *call, settled bool, cost agentbus.Micros) {
	for _, name := range k.held.accounts {
		a := p.accounts[name]
		a.Held -= k.held.amount
		a.Spent += cost
		if !settled {
			a.Calls--
		}
		a.changed = true
	}
	if k.held.accounts != nil {
		k.held, k.rehold = taken{}, true
	}
}

// spend adds cost to the accounts of a call that was settled, in place of what
// it held, and returns which they are. A call whose hold was given up, because
// its process was taken for dead, pays all the same.
func (p *ledgerPage) spend(k *call, hold agentbus.Hold, cost agentbus.Micros) (paid []string) {
	if paid = k.held.accounts; paid != nil {
		p.release(k, true, cost)
		return paid
	}
	for _, b := range hold.Budgets {
		if a := p.accounts[b.Account]; !slices.Contains(paid, b.Account) {
			a.Spent += cost
			a.Calls++
			a.changed, paid = true, append(paid, b.Account)
		}
	}
	return paid
}

// BudgetStates returns the state of each account, in the order given; that of
// one nothing was ever taken from is zero (G27).
func (s *Store) BudgetStates(ctx context.Context, accounts []string) ([]agentbus.BudgetState, error) {
	names := make([]string, len(accounts))
	for i, account := range accounts {
		names[i] = storable(account)
	}
	known := map[string]agentbus.BudgetState{}
	err := s.each(ctx, "read budgets", func(r *row) bool {
		name := r.text()
		known[name] = readState(r, name)
		return true
	}, "SELECT account, "+stateColumns+" FROM accounts WHERE account = ANY($1)", names)
	if err != nil {
		return nil, err
	}
	states := make([]agentbus.BudgetState, len(accounts))
	for i, account := range accounts {
		states[i] = known[account]
		states[i].Account = account
	}
	return states, nil
}

// ReleaseDead gives back what calls hold whose process is no longer alive, and
// returns how many there were (G27). They stay executing, free to be taken over
// (G24): the attempt that follows holds anew.
func (s *Store) ReleaseDead(ctx context.Context, alive func(owner string) bool) (n int, err error) {
	const what = "release the holds of dead processes"
	type holder struct {
		numbered

		owner string
	}
	holders, err := list(ctx, s, what, func(r *row) holder {
		return holder{numbered{id: r.int64(), payer: agentbus.Payer(r.text())}, r.text()}
	}, "SELECT h.call_id, c.payer, c.owner FROM holds h JOIN calls c ON c.id = h.call_id ORDER BY h.call_id")
	if err != nil {
		return 0, err
	}
	for _, h := range holders {
		if alive(h.owner) {
			continue
		}
		err := of(s.ledger, string(h.payer)).do(ctx, s, what, func(p *ledgerPage) { p.wantCall(h.payer, h.id) }, func(p *ledgerPage) error {
			k := p.byID[h.id]
			if k == nil || k.held.accounts == nil || k.Owner != h.owner {
				return nil // it ended, or was taken over
			}
			p.release(k, false, 0)
			n++
			return nil
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
