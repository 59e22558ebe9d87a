package admin

import (
	"context"
	"net/http"
	"strconv"
	"strings"

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

// slowCommit is from when on the commits of the store are slow: every call waits
// for two of them.
const slowCommit = 50 // milliseconds, of 99 in 100

// strip is the health of the bus at a glance (U16).
func strip(v console.Vitals) []console.Figure {
	commit := console.Figure{Name: "commit", Value: "none yet"}
	switch {
	case v.Store.Error != "":
		commit = console.Figure{Name: "store", Value: v.Store.Error, Kind: console.KindFailed}
	case v.Store.P99 > 0:
		commit.Value = ms(v.Store.P50) + ", p99 " + ms(v.Store.P99)
		if v.Store.P99 > slowCommit {
			commit.Value, commit.Kind = commit.Value+", slow", console.KindWaiting
		}
	}
	queue := console.Figure{Name: "queue", Value: strconv.Itoa(v.Queue + v.Store.Queue)}
	if v.Queue > 0 {
		queue.Value, queue.Kind = queue.Value+" waiting", console.KindWaiting
	}
	return []console.Figure{
		commit,
		queue,
		{Name: "live calls", Value: strconv.Itoa(v.Live)},
		{Name: "version", Value: v.Version},
		configFigure(v.Config),
		{Name: "replicas", Value: strconv.Itoa(len(v.Replicas))},
	}
}

// ms is a time in milliseconds as it is read at a glance.
func ms(n float64) string {
	return strconv.FormatFloat(n, 'f', 1, 64) + " ms"
}

// configFigure says whether the configuration in force is the file's, or where
// the file is wrong.
func configFigure(c console.ConfigState) console.Figure {
	switch {
	case len(c.Faults) > 0:
		f := c.Faults[0]
		where := f.Key
		if f.Line > 0 {
			where = "line " + strconv.Itoa(f.Line) + ", " + f.Key
		}
		return console.Figure{Name: "config", Value: strings.TrimPrefix(where+": "+f.Problem, ": "), Kind: console.KindFailed}
	case len(c.Waiting) > 0:
		return console.Figure{Name: "config", Value: "restart for " + strings.Join(c.Waiting, ", "), Kind: console.KindWaiting}
	}
	return console.Figure{Name: "config", Value: "valid"}
}
