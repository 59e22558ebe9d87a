package admin

import (
	"context"
	"net/http"

	"github.com/agentbus/agentbus/admin/console"
)

// vitals says how the bus does (U16).
func (a *API) vitals(ctx context.Context) console.Vitals {
	v := console.Vitals{Config: console.ConfigState{Valid: true}}
	if a.cfg.Vitals != nil {
		v = a.cfg.Vitals(ctx)
	}
	v.Version, v.Owner, v.Config.Path, v.Started = a.cfg.Status.Version, a.cfg.Status.Owner, a.cfg.Status.Config, a.started.UTC()
	v.Live = len(a.cfg.Calls.Live())
	if len(v.Replicas) == 0 {
		v.Replicas = []string{v.Owner}
	}
	v.Config.Faults = append([]console.Fault{}, v.Config.Faults...)
	return v
}

func (a *API) showVitals(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return write(w, http.StatusOK, a.vitals(r.Context()))
}
