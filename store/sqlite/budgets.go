package sqlite

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

// takenBy returns what a call holds.
func takenBy(c *conn, call int64) (taken, error) {
	r, found, err := c.first("SELECT amount, accounts FROM holds WHERE call_id = ?1", call)
	if err != nil || !found {
		return taken{}, err
	}
	t := readTaken(r)
	return t, r.err
}

// short returns the first budget of the reservation that its call does not fit
// into, nil when it fits into all (G27). freed is what the call itself still
// holds, of an attempt that is over.
func short(c *conn, r *agentbus.Reservation, freed taken) (*agentbus.Shortage, error) {
	for _, b := range r.Hold.Budgets {
		state, err := budgetState(c, b.Account)
		if err != nil {
			return nil, err
		}
		if slices.Contains(freed.accounts, b.Account) {
			state.Held -= freed.amount
			state.Calls--
		}
		if fits, passing := b.Fits(state, r.Hold.Amount, stored(r.Call.Began)); !fits {
			return &agentbus.Shortage{Budget: b, State: state, Passing: passing}, nil
		}
	}
	return nil, nil //nolint:nilnil // nothing is short
}

const stateColumns = "held, spent, calls, opened"

func readState(r *row, account string) agentbus.BudgetState {
	return agentbus.BudgetState{Account: account, Held: r.micros(), Spent: r.micros(), Calls: r.int64(), Opened: r.time()}
}

func budgetState(c *conn, account string) (agentbus.BudgetState, error) {
	r, found, err := c.first("SELECT "+stateColumns+" FROM accounts WHERE account = ?1", account)
	if err != nil || !found {
		return agentbus.BudgetState{Account: account}, err
	}
	return readState(r, account), nil
}

// take holds what the reservation asks for on behalf of a call, and returns it.
func take(c *conn, call int64, r *agentbus.Reservation) (t taken, err error) {
	if len(r.Hold.Budgets) == 0 {
		return t, nil
	}
	t.amount = r.Hold.Amount
	for _, b := range r.Hold.Budgets {
		if slices.Contains(t.accounts, b.Account) {
			continue // two bounds of one account hold once
		}
		t.accounts = append(t.accounts, b.Account)
		_, err := c.exec(`INSERT INTO accounts (account, held, spent, calls, opened) VALUES (?1, ?2, 0, 1, ?3)
			ON CONFLICT (account) DO UPDATE SET held = held + excluded.held, calls = calls + 1`,
			b.Account, int64(t.amount), micros(r.Call.Began))
		if err != nil {
			return t, err
		}
	}
	_, err = c.exec("INSERT INTO holds (call_id, amount, accounts) VALUES (?1, ?2, ?3)", call, int64(t.amount), accountsText(t.accounts))
	return t, err
}

// accountsText returns accounts as they are stored; NULL when there are none.
func accountsText(accounts []string) any {
	if accounts == nil {
		return nil
	}
	b, _ := json.Marshal(accounts) // strings always marshal
	return string(b)
}

// release gives back what a call held. Where it was settled, cost is spent in
// its place; otherwise the call does not count.
func (t taken) release(c *conn, call int64, settled bool, cost agentbus.Micros) error {
	if t.accounts == nil {
		return nil
	}
	for _, account := range t.accounts {
		_, err := c.exec("UPDATE accounts SET held = held - ?2, spent = spent + ?3, calls = calls - ?4 WHERE account = ?1",
			account, int64(t.amount), int64(cost), flag(!settled))
		if err != nil {
			return err
		}
	}
	_, err := c.exec("DELETE FROM holds WHERE call_id = ?1", call)
	return err
}

// spend adds cost to the accounts of a call that was settled, in place of what
// it held, and returns which they are. A call whose hold was given up, because
// its process was taken for dead, pays all the same.
func (t taken) spend(c *conn, call int64, hold agentbus.Hold, cost agentbus.Micros) (paid []string, err error) {
	if t.accounts != nil {
		return t.accounts, t.release(c, call, true, cost)
	}
	for _, b := range hold.Budgets {
		if slices.Contains(paid, b.Account) {
			continue
		}
		known, err := c.exec("UPDATE accounts SET spent = spent + ?2, calls = calls + 1 WHERE account = ?1", b.Account, int64(cost))
		if err != nil {
			return nil, err
		}
		if known > 0 {
			paid = append(paid, b.Account)
		}
	}
	return paid, nil
}

// BudgetStates returns the state of each account, in the order given; that of
// one nothing was ever taken from is zero (G27).
func (s *Store) BudgetStates(ctx context.Context, accounts []string) ([]agentbus.BudgetState, error) {
	states := make([]agentbus.BudgetState, 0, len(accounts))
	for _, account := range accounts {
		state, _, err := only(ctx, s, "read a budget", func(r *row) agentbus.BudgetState { return readState(r, account) },
			"SELECT "+stateColumns+" FROM accounts WHERE account = ?1", account)
		if err != nil {
			return nil, err
		}
		state.Account = account
		states = append(states, state)
	}
	return states, nil
}

// ReleaseDead gives back what calls hold whose process is no longer alive, and
// returns how many there were (G27). They stay executing, free to be taken over
// (G24): the attempt that follows holds anew.
func (s *Store) ReleaseDead(ctx context.Context, alive func(owner string) bool) (n int, err error) {
	return write(ctx, s, "release the holds of dead processes", func(c *conn) (int, error) { return releaseDead(c, alive) })
}

func releaseDead(c *conn, alive func(owner string) bool) (n int, err error) {
	clear(c.attempts) // what they hold is about to change
	for after := int64(0); ; {
		r, found, err := c.first(`SELECT h.call_id, c.owner, h.amount, h.accounts FROM holds h JOIN calls c ON c.id = h.call_id
			WHERE h.call_id > ?1 ORDER BY h.call_id LIMIT 1`, after)
		if err != nil || !found {
			return n, err
		}
		after = r.int64()
		owner, held := r.text(), readTaken(r)
		if r.err != nil {
			return n, r.err
		}
		if alive(owner) {
			continue
		}
		if err := held.release(c, after, false, 0); err != nil {
			return n, err
		}
		n++
	}
}
