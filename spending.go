package agentbus

// A SpendingKey says by what a payer's charges are added up (U13).
type SpendingKey string

// By what charges are added up.
const (
	SpendingByAgent SpendingKey = "agent"
	SpendingByRun   SpendingKey = "run"
	SpendingByDay   SpendingKey = "day" // of UTC, such as 2026-11-21
)

// A Spending is a part of what a payer's entries come to.
type Spending struct {
	Of       string `json:"of"`    // the agent, run or day
	Calls    int64  `json:"calls"` // charged
	Voids    int64  `json:"voids"` // attempts that nobody pays
	Charged  Micros `json:"charged_micros"`
	Unbilled Micros `json:"unbilled_micros"` // what nobody pays
}

// A SpendingQuery says what is added up. A time is that of an entry.
type SpendingQuery struct {
	Payer Payer
	By    SpendingKey
	// After leaves out the entries up to this place in the payer's sequence; 0:
	// none. It bounds what one query costs.
	After int64
	Limit int // at most so many parts: of days the newest, else the dearest
}
