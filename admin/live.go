package admin

import (
	"context"
	"net/http"
)

// followCalls tells when what agents are being asked changes (U4).
func (a *API) followCalls(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r, "last"); err != nil {
		return err
	}
	return a.follow(w, r, func(context.Context) (string, bool, error) {
		var now []any
		for _, c := range a.cfg.Calls.Live() {
			now = append(now, []any{c.ID, c.Began, c.Agent, c.TurnKey.ID})
		}
		return version(now), false, nil
	})
}
