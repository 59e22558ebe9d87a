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
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// What the inbox shows.
const (
	openShown    = 50
	decidedShown = 20
	remarksShown = 50
	factsShown   = 24 // of one ask
)

// showInboxPage is the screen inbox (U15).
func (a *API) showInboxPage(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "chosen")
	if err != nil {
		return err
	}
	open, decided, err := a.interrupts(r.Context())
	if err != nil {
		return err
	}
	calls, _, err := a.calls(r, lately())
	if err != nil {
		return err
	}
	remarks, records := remarksOf(calls), recordsOf(calls)
	done, err := a.actions(r.Context(), agentbus.ActionQuery{Limit: actionsShown})
	if err != nil {
		return err
	}
	c := console.InboxPage{
		Remarks: remarks[:min(len(remarks), remarksShown)], Actions: done.Data, More: len(open) > openShown,
		Live: "/console/live/inbox?last=" + inboxVersion(open, decided),
		Empty: console.Empty{
			Title: "Nothing waits for anybody", Text: "What an agent must be told before it goes on stands here: may it, who pays, which one. So do regressions of depth, ignored credentials and cycles.",
			Command: "agentbus run --agent URL#model --approve all \"Say hello\"",
		},
	}
	chosen := agentbus.InterruptID(q.Get("chosen"))
	for _, i := range open[:min(len(open), openShown)] {
		card, err := a.card(r, i)
		if err != nil {
			return err
		}
		card.Chosen = i.ID == chosen
		if n := len(i.Path); n > 0 && card.Price == "" {
			card.Estimate = records[string(i.Path[n-1])].Turn
		}
		c.Open = append(c.Open, card)
	}
	for _, i := range decided {
		c.Decided = append(c.Decided, console.InterruptCard{Interrupt: i, Kind: decisionKind(i.Resolution.Decision), Asks: asks(&i), Way: wayOf(&i), Chosen: i.ID == chosen})
	}
	return a.page(w, r, "inbox", console.Page{Title: "Inbox", Here: "/console/inbox", Content: c})
}

// interrupts returns those that wait, oldest first, and the last that were
// decided, newest first.
func (a *API) interrupts(ctx context.Context) (open, decided []agentbus.Interrupt, err error) {
	if open, err = a.cfg.Interrupts.Interrupts(ctx, agentbus.InterruptQuery{Limit: openShown + 1}); err != nil {
		return nil, nil, err
	}
	decided, err = a.cfg.Interrupts.Interrupts(ctx, agentbus.InterruptQuery{Decided: true, Limit: decidedShown})
	return open, decided, err
}

func inboxVersion(open, decided []agentbus.Interrupt) string {
	return version([][]agentbus.Interrupt{open, decided})
}

// followInbox tells the screen inbox when something waits, or was decided.
func (a *API) followInbox(w http.ResponseWriter, r *http.Request) error {
	return a.follow(w, r, func(ctx context.Context) (string, bool, error) {
		open, decided, err := a.interrupts(ctx)
		return inboxVersion(open, decided), false, err
	})
}

// card is an interrupt as somebody decides it.
func (a *API) card(r *http.Request, i agentbus.Interrupt) (c console.InterruptCard, err error) {
	sum, _, err := a.cfg.Runs.RunSummary(r.Context(), i.Run)
	if err != nil {
		return c, err
	}
	facts := factsOf(&i.Ask)
	return console.InterruptCard{
		Interrupt: i, CSRF: requestOf(r).csrf, Kind: console.KindWaiting, Asks: asks(&i), Way: wayOf(&i), Facts: facts, Price: priceOf(facts),
		After: "then it counts as denied", Cost: sum.Cost, Answers: i.Ask.Kind == agentbus.AskClarification, Choices: i.Ask.Choices,
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

// wayOf is who asks, from the root to the leaf.
func wayOf(i *agentbus.Interrupt) []string {
	way := make([]string, len(i.Path))
	for n, s := range i.Path {
		way[n] = string(s)
	}
	return way
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
	http.Redirect(w, r, "/console/inbox?chosen="+url.QueryEscape(string(id))+"#"+url.PathEscape(string(id)), http.StatusSeeOther)
	return nil
}
