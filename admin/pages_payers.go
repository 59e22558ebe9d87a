package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/internal/httpx"
)

const (
	payersShown = 100
	// mostWeighed is how many payers are compared by what is read of each of them
	// alone, such as their present rate: those that were charged the most.
	mostWeighed = 500
)

// showPayersPage is the screen payers (U13).
func (a *API) showPayersPage(w http.ResponseWriter, r *http.Request) error {
	return a.payersPage(w, r, nil)
}

// payersPage lists payers, and what a verification found.
func (a *API) payersPage(w http.ResponseWriter, r *http.Request, verdict *agentbus.LedgerVerdict) error {
	p, q, err := pageOf(r, "payer", "sort")
	if err != nil {
		return err
	}
	if q.Get("limit") == "" {
		p.limit = payersShown
	}
	c := console.PayersPage{
		Verify:  console.Verify{CSRF: requestOf(r).csrf, Verdict: verdict},
		Filters: console.Filters{Fields: append([]console.Field{{Name: "payer", Label: "Payer", Value: q.Get("payer"), Example: "part of the name"}}, kept(q, "sort")...)},
		Empty: console.Empty{
			Title: "Nobody paid for anything yet", Text: "Whoever's call an agent answers is a payer: each has an account, whose entries are chained by their hashes.",
			Command: "agentbus keys create alice",
		},
	}
	if q.Get("payer") != "" {
		c.Filters.Clear = "/console/payers"
		c.Empty = console.Empty{Title: "No payer is called that", Text: "No account of this store has these letters in its name.", URL: "/console/payers", Link: "Show all payers"}
	}
	next, err := a.listedPayers(r.Context(), p, q, &c)
	if err != nil {
		return err
	}
	if p.after != "" {
		c.Pager.First = "/console/payers?" + with(q, "cursor", "")
	}
	if next != "" {
		c.Pager.Next = "/console/payers?" + with(q, "cursor", next)
	}
	return a.page(w, r, "payers", console.Page{Title: "Payers", Here: "/console/payers", Content: c})
}

// listedPayers fills in the page p of the payers that q asks for, in its order, and
// returns the cursor of the next.
func (a *API) listedPayers(ctx context.Context, p page, q url.Values, c *console.PayersPage) (next string, err error) {
	balances, err := a.cfg.Ledger.Balances(ctx, "")
	if err != nil {
		return "", err
	}
	balances = slices.DeleteFunc(balances, func(b agentbus.Balance) bool {
		return b.Payer == "" || !strings.Contains(string(b.Payer), q.Get("payer"))
	})
	if c.Columns, err = sorted(balances, payerColumns(), sorting{path: "/console/payers", param: "sort", usual: "payer", q: q}); err != nil {
		return "", err
	}
	c.Pager.Text = strconv.Itoa(len(balances)) + " " + words(len(balances), "payer", "payers")
	weigh, weighed := weights[q.Get("sort")]
	if !weighed {
		balances, next = part(balances, p, func(b *agentbus.Balance) string { return string(b.Payer) })
		c.Rows, err = a.accounts(ctx, balances)
		return next, err
	}
	if len(balances) > mostWeighed {
		slices.SortStableFunc(balances, func(x, y agentbus.Balance) int { return cmp.Compare(y.Charged, x.Charged) })
		balances = balances[:mostWeighed]
		c.Pager.Text = "of " + c.Pager.Text + ", the " + strconv.Itoa(mostWeighed) + " that were charged most are sorted by that"
	}
	if c.Rows, err = a.accounts(ctx, balances); err != nil {
		return "", err
	}
	slices.SortStableFunc(c.Rows, func(x, y console.Payer) int { return weigh(&x, &y) })
	c.Rows, next = part(c.Rows, p, func(p *console.Payer) string { return string(p.Payer) })
	return next, nil
}

// showPayerPage is the screen of one payer (U13).
func (a *API) showPayerPage(w http.ResponseWriter, r *http.Request) error {
	return a.payerPage(w, r, agentbus.Payer(r.PathValue("payer")), nil)
}

func (a *API) payerPage(w http.ResponseWriter, r *http.Request, payer agentbus.Payer, verdict *agentbus.LedgerVerdict) error {
	q, err := query(r, "by_agent", "by_run", "by_day", "caps", "stale")
	if err != nil {
		return err
	}
	d, err := a.payerDetail(r.Context(), payer)
	if err != nil {
		return err
	}
	c := console.PayerPage{PayerDetail: d, Entries: d.Calls + d.Voids, Verify: console.Verify{CSRF: requestOf(r).csrf, Payer: payer, Verdict: verdict}}
	if c.Head, err = a.head(r.Context(), payer, c.Entries); err != nil {
		return err
	}
	by := func(table, usual string) sorting {
		return sorting{path: "/console/payers/" + httpx.Segment(string(payer)), param: table, usual: usual, part: table, q: q}
	}
	if c.CapColumns, err = sorted(c.Caps, capColumns(), by("caps", "")); err != nil {
		return err
	}
	c.StaleBound = len(c.Stale) == mostParts
	if c.StaleColumns, err = sorted(c.Stale, staleColumns(), by("stale", "since")); err != nil {
		return err
	}
	for _, p := range []console.Part{
		{Title: "By agent", Name: "by_agent", Link: "/console/agents/", Rows: d.ByAgent, Bound: "the dearest"},
		{Title: "By run", Name: "by_run", Link: "/console/runs/", Short: true, Rows: d.ByRun, Bound: "the dearest"},
		{Title: "By day", Name: "by_day", Rows: d.ByDay, Bound: "the newest"},
	} {
		if len(p.Rows) < mostParts {
			p.Bound = ""
		}
		for _, row := range p.Rows {
			p.Most = max(p.Most, row.Charged)
		}
		columns, usual := partColumns(p.Title), "settled"
		if p.Name == "by_day" {
			columns[0].order, usual = most(spentOn), "of"
		}
		if p.Columns, err = sorted(p.Rows, columns, by(p.Name, usual)); err != nil {
			return err
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
