package main

import (
	"context"
	"net/http"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// stopVerb is the kill switch of a run (G14).
type stopVerb struct {
	operating

	ID string `arg:"" complete:"run" name:"run" help:"The run."`
}

// A stopped is what came of stopping a run.
type stopped struct {
	Run       agentbus.RunID `json:"run"`
	Stopped   bool           `json:"stopped"`
	Known     bool           `json:"known"`
	Cancelled int            `json:"cancelled"`
}

// Validate refuses no id.
func (v *stopVerb) Validate() error { return givenRun(v.ID) }

// Run stops the run at the bus that serves it.
func (v *stopVerb) Run(ctx context.Context, a *app) error {
	o, err := a.operator(v.operating)
	if err != nil {
		return err
	}
	var s stopped
	if err := o.do(ctx, http.MethodPost, "/runs/"+httpx.Segment(v.ID)+"/stop", &s); err != nil {
		return err
	}
	text := "stopped " + harmless(v.ID) + ": " + plural(s.Cancelled, "live call") + " cancelled, new ones are refused\n"
	if !s.Known {
		text += "this bus has not heard of that run yet; see agentbus runs\n"
	}
	return a.answer(s, text)
}
