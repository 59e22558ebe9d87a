package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/agentbus/agentbus"
)

// listInterrupts lists what waits, or everything that ever did, in the order in
// which it was raised. What is secret of it is not shown: see agentbus.Ask.
func (a *API) listInterrupts(w http.ResponseWriter, r *http.Request) error {
	p, q, err := pageOf(r, "payer", "run", "state")
	if err != nil {
		return err
	}
	want := agentbus.InterruptQuery{
		Payer: agentbus.Payer(q.Get("payer")), Run: agentbus.RunID(q.Get("run")), After: agentbus.InterruptID(p.after), Limit: p.limit + 1,
	}
	switch q.Get("state") {
	case "", "open":
	case "all":
		want.All = true
	default:
		return &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "there is no such state",
			Explain: &agentbus.Explain{Supported: []string{"open", "all"}, Next: "leave it out for those that wait"},
		}
	}
	found, err := a.cfg.Interrupts.Interrupts(r.Context(), want)
	if err != nil {
		return err
	}
	shown, err := a.askings(r.Context(), found[:min(len(found), p.limit)])
	if err != nil {
		return err
	}
	l := list[Asking]{Data: shown}
	if len(found) > p.limit {
		l.Next = cursor(string(found[p.limit-1].ID))
	}
	return write(w, http.StatusOK, l)
}

func (a *API) showInterrupt(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	i, found, err := a.cfg.Interrupts.Interrupt(r.Context(), agentbus.InterruptID(r.PathValue("id")))
	if err != nil {
		return err
	}
	if !found {
		return listedAt("GET /admin/v1/interrupts?state=all", &agentbus.Error{Code: agentbus.CodeNotFound, Message: "there is no such interrupt"})
	}
	return a.writeAsking(w, r, i)
}

// writeAsking answers with an interrupt.
func (a *API) writeAsking(w http.ResponseWriter, r *http.Request, i agentbus.Interrupt) error {
	one, err := a.askings(r.Context(), []agentbus.Interrupt{i})
	if err != nil {
		return err
	}
	return write(w, http.StatusOK, one[0])
}

// A decision is what somebody decides on an interrupt.
type decision struct {
	Decision agentbus.Decision `json:"decision"` // granted or denied
	Text     string            `json:"text"`     // an answer, a choice or a reason
	Policy   json.RawMessage   `json:"policy_resolution"`
}

// resolveInterrupt decides an interrupt, once (R22). Who does it is kept with it.
func (a *API) resolveInterrupt(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	x, id := requestOf(r), agentbus.InterruptID(r.PathValue("id"))
	x.object = string(id)
	var d decision
	if err := read(w, r, &d); err != nil {
		return err
	}
	i, err := a.resolve(r.Context(), x, id, d)
	if err != nil {
		return err
	}
	return a.writeAsking(w, r, i)
}

// resolve decides an interrupt in the name of who asks for it.
func (a *API) resolve(ctx context.Context, x *request, id agentbus.InterruptID, d decision) (agentbus.Interrupt, error) {
	x.object, x.did = string(id)+" "+string(d.Decision), deed{kind: "interrupt.resolve", object: string(id), detail: string(d.Decision)}
	i, err := a.cfg.Interrupts.Resolve(ctx, id, agentbus.Resolution{Decision: d.Decision, Text: d.Text, Policy: d.Policy, By: x.who.ID})
	x.did.run = i.Run
	return i, err
}
