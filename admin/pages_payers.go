package admin

import (
	"context"
	"encoding/hex"
	"net/http"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// showPayersPage is the screen payers (U13).
func (a *API) showPayersPage(w http.ResponseWriter, r *http.Request) error {
	return a.payersPage(w, r, nil)
}

// payersPage lists payers, and what a verification found.
func (a *API) payersPage(w http.ResponseWriter, r *http.Request, verdict *agentbus.LedgerVerdict) error {
	p, _, err := pageOf(r)
	if err != nil {
		return err
	}
	l, err := a.payers(r.Context(), p)
	if err != nil {
		return err
	}
	c := console.PayersPage{
		Rows: l.Data, Verify: console.Verify{CSRF: requestOf(r).csrf, Verdict: verdict},
		Columns: []console.Column{
			{Name: "Payer"},
			{Name: "Cap", Explain: "the budgets of money that bound what the payer's calls come to"},
			{Name: "Remaining", Number: true, Explain: "of the cap, neither settled nor reserved"},
			{Name: "Settled", Number: true},
			{Name: "Reserved", Number: true, Explain: "held by calls in flight"},
			{Name: "Voided", Number: true, Explain: "attempts that failed: nobody pays"},
			{Name: "Present rate", Number: true, Explain: "charged in the last hour"},
			{Name: "Forecast", Number: true, Explain: "at the end of the period, at the present rate"},
			{Name: "From memory", Number: true, Explain: "duplicates answered without charge"},
			{Name: "Refused", Number: true},
		},
		Empty: console.Empty{
			Title: "Nobody paid for anything yet", Text: "Whoever's call an agent answers is a payer: each has an account, whose entries are chained by their hashes.",
			Command: "agentbus keys create alice",
		},
	}
	if p.after != "" {
		c.Pager.First = "/console/payers"
	}
	if l.Next != "" {
		c.Pager.Next = "/console/payers?" + with(r.URL.Query(), "cursor", l.Next)
	}
	return a.page(w, r, "payers", console.Page{Title: "Payers", Here: "/console/payers", Content: c})
}

// showPayerPage is the screen of one payer (U13).
func (a *API) showPayerPage(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return a.payerPage(w, r, agentbus.Payer(r.PathValue("payer")), nil)
}

func (a *API) payerPage(w http.ResponseWriter, r *http.Request, payer agentbus.Payer, verdict *agentbus.LedgerVerdict) error {
	d, err := a.payerDetail(r.Context(), payer)
	if err != nil {
		return err
	}
	c := console.PayerPage{PayerDetail: d, Entries: d.Calls + d.Voids, Verify: console.Verify{CSRF: requestOf(r).csrf, Payer: payer, Verdict: verdict}}
	if c.Head, err = a.head(r.Context(), payer, c.Entries); err != nil {
		return err
	}
	for _, p := range []console.Part{
		{Title: "By agent", Link: "/console/agents/", Rows: d.ByAgent},
		{Title: "By run", Link: "/console/runs/", Short: true, Rows: d.ByRun},
		{Title: "By day", Rows: d.ByDay},
	} {
		for _, row := range p.Rows {
			p.Most = max(p.Most, row.Charged)
		}
		c.Parts = append(c.Parts, p)
	}
	return a.page(w, r, "payer", console.Page{Title: "Payer " + string(payer), Here: "/console/payers", Content: c})
}

// head returns the hash of a payer's last entry, in hex; "" when there is none.
func (a *API) head(ctx context.Context, payer agentbus.Payer, entries int64) (string, error) {
	last, err := a.cfg.Ledger.Entries(ctx, payer, max(entries-1, 0), mostParts) // more came meanwhile, perhaps
	if err != nil || len(last) == 0 {
		return "", err
	}
	return hex.EncodeToString(last[len(last)-1].Hash[:]), nil
}

// verifyPage verifies the ledger, and shows what it found where it was asked.
func (a *API) verifyPage(w http.ResponseWriter, r *http.Request) error {
	v, err := a.verify(r)
	if err != nil {
		return err
	}
	if payer := agentbus.Payer(r.PostFormValue("payer")); payer != "" {
		return a.payerPage(w, r, payer, &v)
	}
	return a.payersPage(w, r, &v)
}
