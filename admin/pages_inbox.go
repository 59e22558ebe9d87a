package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// What the inbox shows.
const (
	openRead     = 200 // that wait, the oldest
	openShown    = 50
	decidedShown = 20
	remarksShown = 50
	factsShown   = 24 // of one ask
)

// inboxParams are the parameters of the screen inbox that stay while it is used.
var inboxParams = []string{"payer", "run", "sort", "notices", "decided"}

// openOrders are the orders of what waits, by name; the first is the usual one.
var openOrders = []column[agentbus.Interrupt]{
	{console.Column{URL: "raised"}, order[agentbus.Interrupt]{}},
	{console.Column{URL: "deadline"}, least(func(i *agentbus.Interrupt) int64 { return i.Expires.UnixMicro() })},
	{console.Column{URL: "payer"}, least(func(i *agentbus.Interrupt) agentbus.Payer { return i.Payer })},
	{console.Column{URL: "run"}, least(func(i *agentbus.Interrupt) agentbus.RunID { return i.Run })},
}

// showInboxPage is the screen inbox (U15).
func (a *API) showInboxPage(w http.ResponseWriter, r *http.Request) error {
	p, q, err := pageOf(r, append([]string{"chosen"}, inboxParams...)...)
	if err != nil {
		return err
	}
	if q.Get("limit") == "" {
		p.limit = openShown
	}
	open, decided, err := a.interrupts(r.Context(), q)
	if err != nil {
		return err
	}
	done, err := a.actions(r.Context(), agentbus.ActionQuery{Limit: actionsShown})
	if err != nil {
		return err
	}
	c := console.InboxPage{
		Actions: done.Data, Filters: inboxFilters(q), Waiting: min(len(open), openRead), More: len(open) > openRead,
		Live: "/console/live/inbox?" + with(q, "last", inboxVersion(open, decided)),
		Empty: console.Empty{
			Title: "Nothing waits for anybody", Text: "What an agent must be told before it goes on stands here: may it, who pays, which one. So do regressions of depth, ignored credentials and cycles.",
			Command: "agentbus inbox --all",
		},
	}
	if c.Filters.Clear != "" {
		c.Empty = console.Empty{Title: "Nothing that waits is like that", Text: "Nothing of this payer or run waits for anybody.", URL: "/console/inbox", Link: "Show all that waits"}
	}
	calls, _, err := a.calls(r, lately())
	if err == nil {
		err = a.openCards(r, p, q, open, calls, &c)
	}
	if err == nil {
		err = a.decidedCards(r, q, decided, &c)
	}
	if err == nil {
		err = notices(q, calls, &c)
	}
	if err != nil {
		return err
	}
	return a.page(w, r, "inbox", console.Page{Title: "Inbox", Here: "/console/inbox", Content: c})
}

func inboxFilters(q url.Values) console.Filters {
	f := console.Filters{Fields: []console.Field{{Name: "payer", Label: "Payer", Value: q.Get("payer")}, {Name: "run", Label: "Run", Value: q.Get("run")}}}
	if q.Get("payer") != "" || q.Get("run") != "" {
		f.Clear = "/console/inbox"
	}
	by := console.Field{Name: "sort", Label: "First by", Value: cmp.Or(q.Get("sort"), openOrders[0].URL), Sole: true}
	for _, o := range openOrders {
		by.Options = append(by.Options, o.URL)
	}
	f.Fields = append(append(f.Fields, by), kept(q, "notices", "decided")...)
	return f
}

// openCards fills in the page p of what waits.
func (a *API) openCards(r *http.Request, p page, q url.Values, open []agentbus.Interrupt, calls []agentbus.CallRecord, c *console.InboxPage) error {
	open = open[:c.Waiting]
	if _, err := sorted(open, openOrders, sorting{path: "/console/inbox", param: "sort", usual: openOrders[0].URL, q: q}); err != nil {
		return err
	}
	shown, next := part(open, p, func(i *agentbus.Interrupt) string { return string(i.ID) })
	if next != "" {
		c.Pager.Next = "/console/inbox?" + with(q, "cursor", next)
	}
	if p.after != "" {
		c.Pager.First = "/console/inbox?" + with(q, "cursor", "")
	}
	if c.Pager.Text = strconv.Itoa(len(shown)) + " of " + strconv.Itoa(len(open)); c.More {
		c.Pager.Text += ", the oldest of more that wait"
	}
	records, prices := recordsOf(calls), map[string]agentbus.Micros{}
	for _, agent := range a.cfg.Agents.Agents() {
		if agent.Price != nil {
			prices[agent.Name] = agent.Price.Call
		}
	}
	asked, err := a.askings(r.Context(), shown)
	if err != nil {
		return err
	}
	for _, i := range asked {
		card, err := a.card(r, q, &i)
		if err != nil {
			return err
		}
		if n := len(i.Path); n > 0 && card.Price == "" {
			card.Estimate, card.Least = records[string(i.Path[n-1])].Turn, prices[string(i.Path[n-1])]
		}
		c.Open = append(c.Open, card)
	}
	return nil
}

// decidedCards fills in what was decided last.
func (a *API) decidedCards(r *http.Request, q url.Values, decided []agentbus.Interrupt, c *console.InboxPage) (err error) {
	asked, err := a.askings(r.Context(), decided)
	if err != nil {
		return err
	}
	for _, i := range asked {
		c.Decided = append(c.Decided, console.InterruptCard{
			Interrupt: i.Interrupt, Kind: decisionKind(i.Resolution.Decision), Asks: asks(&i.Interrupt), Way: i.Way, Chosen: string(i.ID) == q.Get("chosen"),
		})
	}
	c.DecidedBound = len(decided) == decidedShown
	c.DecidedColumns, err = sorted(c.Decided, decidedColumns(), sorting{path: "/console/inbox", param: "decided", usual: "when", part: "decided", q: q})
	return err
}

// notices fills in what an operator should know of calls.
func notices(q url.Values, calls []agentbus.CallRecord, c *console.InboxPage) (err error) {
	calls = slices.DeleteFunc(calls, func(c agentbus.CallRecord) bool {
		return q.Get("payer") != "" && string(c.Payer) != q.Get("payer") || q.Get("run") != "" && string(c.Run) != q.Get("run")
	})
	c.Remarks = remarksOf(calls)
	c.RemarkColumns, err = sorted(c.Remarks, remarkColumns(), sorting{path: "/console/inbox", param: "notices", usual: "when", part: "notices", q: q})
	c.RemarksOf = len(c.Remarks)
	c.Remarks = c.Remarks[:min(len(c.Remarks), remarksShown)]
	return err
}

// interrupts returns those that wait, oldest first, and the last that were
// decided, newest first, of the payer and run that q asks for.
func (a *API) interrupts(ctx context.Context, q url.Values) (open, decided []agentbus.Interrupt, err error) {
	want := agentbus.InterruptQuery{Payer: agentbus.Payer(q.Get("payer")), Run: agentbus.RunID(q.Get("run")), Limit: openRead + 1}
	if open, err = a.cfg.Interrupts.Interrupts(ctx, want); err != nil {
		return nil, nil, err
	}
	want.Decided, want.Limit = true, decidedShown
	decided, err = a.cfg.Interrupts.Interrupts(ctx, want)
	return open, decided, err
}

func inboxVersion(open, decided []agentbus.Interrupt) string {
	return version([][]agentbus.Interrupt{open, decided})
}

// followInbox tells the screen inbox when something waits, or was decided.
func (a *API) followInbox(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, append([]string{"chosen", "cursor", "limit", "last"}, inboxParams...)...)
	if err != nil {
		return err
	}
	return a.follow(w, r, func(ctx context.Context) (string, bool, error) {
		open, decided, err := a.interrupts(ctx, q)
		return inboxVersion(open, decided), false, err
	})
}

// card is an interrupt as somebody decides it.
func (a *API) card(r *http.Request, q url.Values, i *Asking) (c console.InterruptCard, err error) {
	sum, _, err := a.cfg.Runs.RunSummary(r.Context(), i.Run)
	if err != nil {
		return c, err
	}
	facts := factsOf(&i.Ask)
	return console.InterruptCard{
		Interrupt: i.Interrupt, Action: "/console/inbox/" + url.PathEscape(string(i.ID)) + "?" + back(q), CSRF: requestOf(r).csrf, Kind: console.KindWaiting, Asks: asks(&i.Interrupt), Way: i.Way, Facts: facts, Price: priceOf(facts),
		After: "then it counts as denied", Cost: sum.Cost, Answers: i.Ask.Kind == agentbus.AskClarification, Choices: i.Ask.Choices,
		Chosen: string(i.ID) == q.Get("chosen"),
	}, nil
}

// asks says what is asked, in a word.
func asks(i *agentbus.Interrupt) string {
	switch i.Ask.Kind {
	case agentbus.AskApproval:
		return "approval"
	case agentbus.AskClarification:
		return "question"
	case agentbus.AskPolicy:
		if strings.Contains(string(i.Ask.Policy), string(agentbus.PolicyPaymentRequired)) || len(i.Ask.X402) > 0 {
			return "payment"
		}
		return "consent"
	case agentbus.AskLowConfidence:
		return "low confidence"
	case agentbus.AskAuth:
		return "credential"
	}
	return string(i.Ask.Kind)
}

func decisionKind(d agentbus.Decision) console.Kind {
	switch d {
	case agentbus.DecisionGranted:
		return console.KindDone
	case agentbus.DecisionDenied:
		return console.KindRefused
	case agentbus.DecisionExpired, agentbus.DecisionWithdrawn:
	}
	return console.KindStopped
}

// factsOf returns what an ask says beside its prompt: the issuer, and what stands
// in its policy part and in the words of x402, such as an amount and a payee. An
// Ask as JSON has no secret.
func factsOf(ask *agentbus.Ask) (facts []console.Fact) {
	if ask.Issuer != "" {
		facts = append(facts, console.Fact{Name: "issuer", Value: ask.Issuer})
	}
	shown, err := json.Marshal(ask)
	var parts struct {
		Policy any            `json:"policy"`
		X402   map[string]any `json:"x402"`
	}
	if err != nil || json.Unmarshal(shown, &parts) != nil {
		return facts
	}
	flatten(&facts, "", parts.Policy)
	flatten(&facts, "", any(parts.X402))
	return facts[:min(len(facts), factsShown)]
}

// flatten adds what is at the ends of v, by its path.
func flatten(facts *[]console.Fact, path string, v any) {
	join := func(name string) string { return strings.TrimPrefix(path+" "+name, " ") }
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if name != "state" && name != "title" && name != "message" {
				flatten(facts, join(name), v[name])
			}
		}
	case []any:
		for n, one := range v {
			if flatten(facts, path, one); n > 3 {
				return
			}
		}
	case nil:
	default:
		if len(*facts) < factsShown {
			*facts = append(*facts, console.Fact{Name: cmp.Or(path, "policy"), Value: fmt.Sprint(v)})
		}
	}
}

// priceOf is the amount among facts; "" when they name none.
func priceOf(facts []console.Fact) string {
	for _, f := range facts {
		name := strings.ToLower(f.Name)
		if strings.HasSuffix(name, "amount") || strings.HasSuffix(name, "amountrequired") || strings.HasSuffix(name, "price") {
			return f.Value
		}
	}
	return ""
}

// decidePage decides an interrupt, once, and shows who decided (U15).
func (a *API) decidePage(w http.ResponseWriter, r *http.Request) error {
	id := agentbus.InterruptID(r.PathValue("id"))
	_, err := a.resolve(r.Context(), requestOf(r), id, decision{Decision: agentbus.Decision(r.PostFormValue("decision")), Text: strings.TrimSpace(r.PostFormValue("text"))})
	if err != nil {
		return err
	}
	q := r.URL.Query()
	q.Set("chosen", string(id))
	http.Redirect(w, r, "/console/inbox?"+back(q)+"#"+url.PathEscape(string(id)), http.StatusSeeOther)
	return nil
}

// back is what leads back to the inbox as it was filtered and sorted.
func back(q url.Values) string {
	stays := url.Values{}
	for _, name := range append([]string{"chosen"}, inboxParams...) {
		if value := q.Get(name); value != "" {
			stays.Set(name, value)
		}
	}
	return stays.Encode()
}
