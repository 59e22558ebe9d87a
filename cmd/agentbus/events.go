package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentbus/agentbus"
)

// eventsVerb prints what the drivers of a run wrote.
type eventsVerb struct {
	ID string `arg:"" complete:"run" name:"run" help:"The run."`
}

// Validate refuses no id.
func (v *eventsVerb) Validate() error { return givenRun(v.ID) }

// Run prints the events of a run, a line each.
func (v *eventsVerb) Run(ctx context.Context, a *app) error {
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	if _, err := executionsOf(ctx, s.Store(), agentbus.RunID(v.ID)); err != nil {
		return err
	}
	f := follower{store: s.Store(), run: agentbus.RunID(v.ID)}
	events, err := f.news(ctx)
	if err != nil {
		return err
	}
	for i := range events {
		if err := v.print(a, &events[i].Event); err != nil {
			return err
		}
	}
	return nil
}

func (v *eventsVerb) print(a *app, e *agentbus.Event) error {
	if a.JSON { // lines, as of a log
		raw, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(append(raw, '\n'))
		return err
	}
	at := e.At.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	place := fmt.Sprint(e.Position)
	if string(e.Execution) != string(e.Run) {
		place = string(e.Execution) + ":" + place
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s  %s\n", at, place, e.Type, harmless(string(e.Data)))
	return err
}

// executionsOf returns the executions of a run, of which there is one at least.
func executionsOf(ctx context.Context, s tracer, run agentbus.RunID) ([]agentbus.Execution, error) {
	executions, err := s.Executions(ctx, run)
	if err == nil && len(executions) == 0 {
		return nil, &agentbus.Error{
			Code: agentbus.CodeRunNotFound, Message: "no driver of this store ran " + harmless(string(run)),
			Explain: &agentbus.Explain{Next: "see agentbus runs; a run without a conversation was driven elsewhere, and its events are there"},
		}
	}
	return executions, err
}
