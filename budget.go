package agentbus

import "time"

// A Budget bounds what is spent on one account (G27).
type Budget struct {
	// Account names whose budget it is and, when it has a period, which one:
	// "payer/user-123/day/2026-11-21". A store only compares it.
	Account string `json:"account"`
	// Limit is the most that may be spent; 0: nothing may be.
	Limit Micros `json:"limit_micros"`
	// Calls is how many calls may be executed; 0: any number.
	Calls int64 `json:"calls,omitempty"`
	// MaxAge is how long after the account's first call another may begin; 0:
	// any time.
	MaxAge time.Duration `json:"max_age,omitempty"`
	// Strict refuses a call whose worst case might not fit, so that the limit is
	// never overshot. Otherwise a call is refused once the limit is reached, and
	// those in flight then may overshoot it.
	Strict bool `json:"strict"`
}

// A Hold is what a call takes from its budgets before it is made: the most it
// can cost. The zero Hold takes nothing.
type Hold struct {
	Amount  Micros   // the worst case
	Budgets []Budget // that bound the call; each is held Amount of
}

// A BudgetState is what an account has spent, and what calls in flight hold of
// it.
type BudgetState struct {
	Account string    `json:"account"`
	Held    Micros    `json:"held_micros"`
	Spent   Micros    `json:"spent_micros"`
	Calls   int64     `json:"calls"`  // executed, those in flight included
	Opened  time.Time `json:"opened"` // of its first call
}

// A Shortage says which budget refused a call, and what it had left.
type Shortage struct {
	Budget Budget
	State  BudgetState
	// Passing says that the call would fit once calls in flight have released
	// what they hold: it is worth to wait.
	Passing bool
}

// Fits reports whether a call that begins at a time and holds amount may take
// it from b, whose account is in state s, and if not whether waiting may help.
// It is the one rule by which every store decides (G27).
func (b Budget) Fits(s BudgetState, amount Micros, at time.Time) (fits, passing bool) {
	switch {
	case b.MaxAge > 0 && !s.Opened.IsZero() && at.Sub(s.Opened) > b.MaxAge,
		b.Calls > 0 && s.Calls >= b.Calls:
		return false, false
	case b.Strict:
		return s.Spent+s.Held+amount <= b.Limit, s.Spent+amount <= b.Limit
	}
	return s.Spent < b.Limit || amount == 0, false
}
