package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/server"
)

// inboxVerb lists what runs wait for.
type inboxVerb struct {
	operating

	Of    string `complete:"run" name:"run" placeholder:"RUN" help:"Of this run only."`
	Payer string `placeholder:"PAYER" help:"Of this payer only."`
	All   bool   `help:"Decided ones too."`
	Limit int    `default:"100" help:"At most this many."`
	After string `complete:"interrupt" placeholder:"ID" help:"Go on behind this one, the last of the page before."`
}

// Run prints what waits, oldest first.
func (v *inboxVerb) Run(ctx context.Context, a *app) error {
	if v.Limit < 1 || v.Limit > 1000 {
		return &failure{exit: exitUsage, what: "--limit must be 1 to 1000", next: "page with --after"}
	}
	found, err := v.read(ctx, a)
	if err != nil {
		return err
	}
	if found == nil {
		found = []admin.Asking{} // [] in JSON
	}
	if len(found) == 0 {
		return a.answer(found, "nothing waits\n")
	}
	rows := [][]string{{"ID", "KIND", "WHO", "WHAT", "RUN", "PAYER", "EXPIRES", "DECISION"}}
	for i := range found {
		f := &found[i]
		rows = append(rows, []string{
			string(f.ID), string(f.Ask.Kind), wayOf(f), dash(f.Ask.Title), string(f.Run), dash(string(f.Payer)), when(f.Expires), decisionOf(&f.Interrupt),
		})
	}
	return a.answer(found, a.listing(rows))
}

// read asks the bus that is named, or the store.
func (v *inboxVerb) read(ctx context.Context, a *app) ([]admin.Asking, error) {
	if v.named(a) == "" {
		s, _, err := a.opened(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close() //nolint:errcheck // only read
		found, err := s.Store().Interrupts(ctx, agentbus.InterruptQuery{
			Payer: agentbus.Payer(v.Payer), Run: agentbus.RunID(v.Of), All: v.All, After: agentbus.InterruptID(v.After), Limit: v.Limit,
		})
		if err != nil {
			return nil, err
		}
		return admin.Askings(ctx, s.Store(), s.Store(), found)
	}
	if v.After != "" {
		return nil, &failure{exit: exitUsage, what: "--after pages through a store, not through a bus", next: "raise --limit, or name a run"}
	}
	o, err := a.operator(v.operating)
	if err != nil {
		return nil, err
	}
	q := url.Values{"limit": {strconv.Itoa(v.Limit)}}
	for name, value := range map[string]string{"run": v.Of, "payer": v.Payer} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if v.All {
		q.Set("state", "all")
	}
	var l struct {
		Data []admin.Asking `json:"data"`
	}
	return l.Data, o.do(ctx, http.MethodGet, "/interrupts?"+q.Encode(), &l)
}

// wayOf is who asks, through whom, from the root (U15).
func wayOf(i *admin.Asking) string { return strings.Join(i.Way, " > ") }

// decisionOf is what was decided, by whom.
func decisionOf(i *agentbus.Interrupt) string {
	switch r := i.Resolution; {
	case r == nil && !time.Now().Before(i.Expires):
		return "time is up: denied" // by whoever looks at it next, a bus or a resume
	case r == nil:
		return "waits"
	case r.By == "":
		return string(r.Decision)
	default:
		return string(r.Decision) + " by " + r.By
	}
}

// deciding is what approve and deny have in common.
type deciding struct {
	operating

	ID     string `arg:"" complete:"interrupt" name:"id" help:"The interrupt, as agentbus inbox names it."`
	Resume bool   `help:"Go on with its run here at once; else a bus that serves over the store does, or agentbus resume."`
}

// approveVerb grants an interrupt.
type approveVerb struct {
	deciding

	Text   string `help:"The answer to a question, or the choice of an approval."`
	Policy string `placeholder:"JSON" help:"Evidence for the agent that issued a policy part: the policy_resolution, without its state."`
}

// Run grants it.
func (v *approveVerb) Run(ctx context.Context, a *app) error {
	if v.Policy != "" && !json.Valid([]byte(v.Policy)) {
		return &failure{exit: exitUsage, what: "--policy is not JSON", next: `such as --policy '{"evidence":"receipt 7"}'`}
	}
	return v.decide(ctx, a, agentbus.Resolution{Decision: agentbus.DecisionGranted, Text: v.Text, Policy: json.RawMessage(v.Policy)})
}

// denyVerb denies an interrupt.
type denyVerb struct {
	deciding

	Reason string `help:"Why."`
}

// Run denies it.
func (v *denyVerb) Run(ctx context.Context, a *app) error {
	return v.decide(ctx, a, agentbus.Resolution{Decision: agentbus.DecisionDenied, Text: v.Reason})
}

// decide decides the interrupt at the bus that is named, or in the store.
func (v *deciding) decide(ctx context.Context, a *app, r agentbus.Resolution) error {
	if v.named(a) != "" {
		return v.decideThere(ctx, a, r)
	}
	s, why, err := a.driving(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // what was acknowledged is durable already
	if v.Resume {
		if i, found, err := s.Store().Interrupt(ctx, agentbus.InterruptID(v.ID)); err == nil && found && !ownRun(&i) {
			return &failure{exit: exitUsage, what: "--resume cannot go on with a conversation that serves a call: nobody would read what it says", next: "leave --resume out; " + goesOn(&i)}
		}
	}
	r.By = string(server.LocalPayer)
	i, err := s.Resolve(ctx, agentbus.InterruptID(v.ID), r)
	if err != nil {
		return err
	}
	if v.Resume {
		return a.converse(ctx, s, why, server.Start{Run: i.Run, Authorization: a.token(), Resume: true})
	}
	how := goesOn(&i)
	if ownRun(&i) {
		how = "its run goes on where agentbus serve drives this store, or with: agentbus resume " + operand(i.Run)
	}
	return a.answer(i, fmt.Sprintf("%s %s; %s\n", r.Decision, i.ID, how))
}

// ownRun reports whether what waits at the root of an interrupt is a run of its
// own, which a bus drives, and no conversation that serves a call from outside.
func ownRun(i *agentbus.Interrupt) bool { return i.Root == agentbus.ExecutionID(i.Run) }

// goesOn says when what waited for an interrupt goes on, at the bus that serves it.
func goesOn(i *agentbus.Interrupt) string {
	if ownRun(i) {
		return "run " + harmless(string(i.Run)) + " goes on"
	}
	return "it serves a call of run " + harmless(string(i.Run)) + ", and goes on when its caller sends that turn again; a task of A2A by itself"
}

func (v *deciding) decideThere(ctx context.Context, a *app, r agentbus.Resolution) error {
	if v.Resume {
		return &failure{exit: exitUsage, what: "--resume goes on here, and the run is driven by the bus that was named", next: "leave --resume out: the workers of that bus go on"}
	}
	o, err := a.operator(v.operating)
	if err != nil {
		return err
	}
	body := struct {
		Decision agentbus.Decision `json:"decision"`
		Text     string            `json:"text,omitempty"`
		Policy   json.RawMessage   `json:"policy_resolution,omitempty"`
	}{r.Decision, r.Text, r.Policy}
	var i agentbus.Interrupt
	if err := o.send(ctx, http.MethodPost, "/interrupts/"+url.PathEscape(v.ID)+"/resolve", body, &i); err != nil {
		return err
	}
	return a.answer(i, fmt.Sprintf("%s %s; %s\n", r.Decision, i.ID, goesOn(&i)))
}

// waiting tells what a run waits for, and what to type.
func waiting(h *agentbus.Halt, resume string) *failure {
	f := &failure{exit: exitWaiting, what: "waiting: " + harmless(h.Participant) + " asks: " + harmless(h.Reason), next: "see agentbus inbox"}
	if h.Wait == nil || len(h.Wait.Interrupts) == 0 {
		return f
	}
	f.next = fmt.Sprintf("agentbus approve %s, or agentbus deny %[1]s; then %s", h.Wait.Interrupts[0], resume)
	if n := len(h.Wait.Interrupts); n > 1 {
		f.what = fmt.Sprintf("waiting: %d participants ask; the first of them, %s: %s", n, harmless(h.Participant), harmless(h.Reason))
		f.next = "agentbus inbox, agentbus approve ID or agentbus deny ID for each; then " + resume
	}
	return f
}
