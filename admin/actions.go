package admin

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
)

// A deed is what a request changed, or was to change, as it is kept (U5).
type deed struct {
	kind   string // such as run.stop; "": the route
	object string // what it was done to; "": as the log says
	run    agentbus.RunID
	detail string
}

// recordPatience is how long a deed may take to be stored, whether or not its
// request still waits.
const recordPatience = 5 * time.Second

// record keeps what an operator did, or was refused; what others try stands in
// the log alone, so that nobody fills the store with it. A store that cannot keep
// it does not undo what was done: the line in the log stands.
func (a *API) record(x *request, pattern string, r *http.Request) {
	if a.cfg.Actions == nil || !slices.Contains(operators, x.who.Role) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordPatience)
	defer cancel()
	err := a.cfg.Actions.RecordAction(ctx, agentbus.Action{
		At: time.Now().UTC(), By: x.who.ID, Kind: cmp.Or(x.did.kind, pattern), Object: cmp.Or(x.did.object, x.object), Run: x.did.run, Detail: x.did.detail,
		Code: agentbus.CodeOf(x.err), RequestID: x.id,
	})
	if err != nil {
		a.log.LogAttrs(ctx, slog.LevelError, "cannot record what an operator did", slog.Any("error", err), slog.String("request_id", x.id))
	}
}

func (a *API) listActions(w http.ResponseWriter, r *http.Request) error {
	p, q, err := pageOf(r, "run", "object")
	if err != nil {
		return err
	}
	before, err := p.number(0)
	if err != nil {
		return err
	}
	l, err := a.actions(r.Context(), agentbus.ActionQuery{Run: agentbus.RunID(q.Get("run")), Object: q.Get("object"), Before: before, Limit: p.limit})
	return writePage(w, l, err)
}

// actions returns a page of what operators did, newest first.
func (a *API) actions(ctx context.Context, q agentbus.ActionQuery) (l list[agentbus.Action], err error) {
	l.Data = []agentbus.Action{}
	if a.cfg.Actions == nil {
		return l, nil
	}
	most := q.Limit
	q.Limit++
	found, err := a.cfg.Actions.Actions(ctx, q)
	if err != nil {
		return l, err
	}
	l.Data = append(l.Data, found[:min(len(found), most)]...)
	if len(found) > most {
		l.Next = cursor(number(found[most-1].ID))
	}
	return l, nil
}
