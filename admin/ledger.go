package admin

import (
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
)

func (a *API) listBalances(w http.ResponseWriter, r *http.Request) error {
	p, q, err := pageOf(r, "payer")
	if err != nil {
		return err
	}
	balances, err := a.cfg.Ledger.Balances(r.Context(), agentbus.Payer(q.Get("payer")))
	if err != nil {
		return err
	}
	l, err := cut(all(balances), p.limit, p.after, func(_ int, b agentbus.Balance) string { return string(b.Payer) })
	return writePage(w, l, err)
}

func (a *API) listEntries(w http.ResponseWriter, r *http.Request) error {
	p, q, err := pageOf(r, "payer")
	if err != nil {
		return err
	}
	after, err := p.number(0)
	if err != nil {
		return err
	}
	if q.Get("payer") == "" {
		return invalid("the query names no payer", "add payer=; GET /admin/v1/ledger/balances lists them")
	}
	entries, err := a.cfg.Ledger.Entries(r.Context(), agentbus.Payer(q.Get("payer")), after, p.limit+1)
	if err != nil {
		return err
	}
	l, err := cut(all(entries), p.limit, after, func(_ int, e agentbus.Entry) int64 { return e.Seq })
	return writePage(w, l, err)
}

// exportEntries streams every entry of a payer, or of all of them (G28).
func (a *API) exportEntries(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "payer", "format")
	if err != nil {
		return err
	}
	x := Export{Ledger: a.cfg.Ledger, Payer: agentbus.Payer(q.Get("payer"))}
	contentType, extension := "application/jsonl", "jsonl"
	switch format := q.Get("format"); format {
	case "", "jsonl":
	case "csv":
		x.CSV, contentType, extension = true, "text/csv; charset=utf-8; header=present", "csv"
	default:
		return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "there is no such format", Explain: &agentbus.Explain{Supported: []string{"jsonl", "csv"}}}
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Disposition", `attachment; filename="ledger.`+extension+`"`)
	if err := x.Write(r.Context(), w); err != nil { // what was sent cannot be taken back: the answer is cut, so that nobody takes it for whole
		requestOf(r).err = err
		panic(http.ErrAbortHandler) //nolint:forbidigo // the server cuts the connection
	}
	return nil
}

// A verdict says whether the ledger is what it must be.
type verdict struct {
	OK bool `json:"ok"`
	agentbus.LedgerVerdict
}

func (a *API) verifyLedger(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	v, err := a.verify(r)
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, verdict{v.Fault == "", v})
}

// verify recomputes the ledger in the name of who asks for it.
func (a *API) verify(r *http.Request) (agentbus.LedgerVerdict, error) {
	x := requestOf(r)
	x.did = deed{kind: "ledger.verify", detail: "in order"}
	v, err := a.cfg.Ledger.VerifyLedger(r.Context())
	if x.object = v.Fault; v.Fault != "" {
		x.did.detail = "broken"
	}
	return v, err
}

// A budget is a configured budget and how far it is spent.
type budget struct {
	Account string          `json:"account"`
	Limit   agentbus.Micros `json:"limit_micros"`
	Held    agentbus.Micros `json:"held_micros"`
	Spent   agentbus.Micros `json:"spent_micros"`
	Left    agentbus.Micros `json:"left_micros"` // what a call may still hold; below 0 when a budget that is not strict was overshot
	Strict  bool            `json:"strict"`
	Calls   int64           `json:"calls"`               // executed
	MaxCall int64           `json:"max_calls,omitempty"` // 0: any number
	MaxAge  string          `json:"max_age,omitempty"`   // "": any
	Opened  time.Time       `json:"opened,omitzero"`     // of the first call
}

func (a *API) listBudgets(w http.ResponseWriter, r *http.Request) error {
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	budgets, err := a.budgets(r)
	if err != nil {
		return err
	}
	after, err := p.number(0)
	if err != nil {
		return err
	}
	l, err := cut(all(budgets), p.limit, after, ordinal)
	return writePage(w, l, err)
}

func (a *API) budgets(r *http.Request) (views []budget, err error) {
	if a.cfg.Budgets == nil {
		return nil, nil
	}
	configured := a.cfg.Budgets()
	accounts := make([]string, len(configured))
	for i, b := range configured {
		accounts[i] = b.Account
	}
	states, err := a.cfg.Ledger.BudgetStates(r.Context(), accounts)
	if err != nil {
		return nil, err
	}
	byAccount := make(map[string]agentbus.BudgetState, len(states))
	for _, s := range states {
		byAccount[s.Account] = s
	}
	for _, b := range configured {
		s := byAccount[b.Account]
		v := budget{
			Account: b.Account, Limit: b.Limit, Held: s.Held, Spent: s.Spent, Left: b.Limit - s.Held - s.Spent, Strict: b.Strict,
			Calls: s.Calls, MaxCall: b.Calls, Opened: s.Opened,
		}
		if b.MaxAge > 0 {
			v.MaxAge = b.MaxAge.String()
		}
		views = append(views, v)
	}
	return views, nil
}
