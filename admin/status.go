package admin

import (
	_ "embed"
	"net/http"
	"time"
)

// A status is what the bus says of itself, and what it is doing.
type status struct {
	Status

	Started time.Time `json:"started"`
	Uptime  int64     `json:"uptime_seconds"`
	Live    int       `json:"live_calls"`
}

func (a *API) showStatus(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return write(w, http.StatusOK, status{
		Status: a.cfg.Status, Started: a.started.UTC(), Uptime: int64(time.Since(a.started).Seconds()), Live: len(a.cfg.Calls.Live()),
	})
}

// document describes this API: OpenAPI 3.1, written by hand and held to the
// handlers by a test.
//
//go:embed openapi.json
var document []byte

func showDocument(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document) // a caller that left is its own loss
	return nil
}
