package admin

import (
	"encoding/csv"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
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

// exportPage is how many entries are read at once.
const exportPage = 1000

// exportEntries streams every entry of a payer, or of all of them (G28).
func (a *API) exportEntries(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "payer", "format")
	if err != nil {
		return err
	}
	var out export
	switch format := q.Get("format"); format {
	case "", "jsonl":
		out = jsonLines{w}
	case "csv":
		out = &csvLines{w: csv.NewWriter(w)}
	default:
		return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "there is no such format", Explain: &agentbus.Explain{Supported: []string{"jsonl", "csv"}}}
	}
	balances, err := a.cfg.Ledger.Balances(r.Context(), agentbus.Payer(q.Get("payer")))
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", out.contentType())
	h.Set("Content-Disposition", `attachment; filename="ledger.`+out.extension()+`"`)
	err = out.begin()
	for _, b := range balances {
		if err == nil {
			err = a.exportPayer(r, out, b.Payer)
		}
	}
	if err != nil { // what was sent cannot be taken back: the answer is cut, so that nobody takes it for whole
		requestOf(r).err = err
		panic(http.ErrAbortHandler) //nolint:forbidigo // the server cuts the connection
	}
	return nil
}

func (a *API) exportPayer(r *http.Request, out export, payer agentbus.Payer) error {
	for after := int64(0); ; {
		entries, err := a.cfg.Ledger.Entries(r.Context(), payer, after, exportPage)
		if err != nil || len(entries) == 0 {
			return err
		}
		if err := out.write(entries); err != nil {
			return err
		}
		after = entries[len(entries)-1].Seq
	}
}

// An export writes entries in some form.
type export interface {
	contentType() string
	extension() string
	begin() error
	write(entries []agentbus.Entry) error
}

type jsonLines struct{ w http.ResponseWriter }

func (jsonLines) contentType() string { return "application/jsonl" }
func (jsonLines) extension() string   { return "jsonl" }
func (jsonLines) begin() error        { return nil }

func (l jsonLines) write(entries []agentbus.Entry) error {
	for i := range entries {
		line, err := encode(&entries[i])
		if err != nil {
			return err
		}
		if _, err := l.w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

type csvLines struct{ w *csv.Writer }

func (*csvLines) contentType() string { return "text/csv; charset=utf-8; header=present" }
func (*csvLines) extension() string   { return "csv" }

func (l *csvLines) begin() error {
	return l.w.Write([]string{"payer", "seq", "kind", "at", "agent", "run", "turn", "call", "attempt", "amount_micros", "amount_usd", "unbilled_micros", "unbilled_usd", "prev", "hash"})
}

func (l *csvLines) write(entries []agentbus.Entry) error {
	for i := range entries {
		e := &entries[i]
		err := l.w.Write([]string{
			cell(string(e.Payer)), number(e.Seq), string(e.Kind), e.At.UTC().Format(time.RFC3339Nano), cell(e.Agent), cell(string(e.Run)), cell(string(e.Turn)),
			number(e.Call), strconv.Itoa(e.Attempt), number(int64(e.Amount)), e.Amount.USD(), number(int64(e.Unbilled)), e.Unbilled.USD(),
			hex.EncodeToString(e.Prev[:]), hex.EncodeToString(e.Hash[:]),
		})
		if err != nil {
			return err
		}
	}
	l.w.Flush()
	return l.w.Error()
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// cell is a text that callers chose as a spreadsheet may read it: never as a
// formula.
func cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
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
	v, err := a.cfg.Ledger.VerifyLedger(r.Context())
	if err != nil {
		return err
	}
	requestOf(r).object = v.Fault
	return write(w, http.StatusOK, verdict{v.Fault == "", v})
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
