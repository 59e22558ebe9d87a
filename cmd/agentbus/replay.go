package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// replayVerb replays a run, forks it, or compares it with another one.
type replayVerb struct {
	ID     string  `arg:"" complete:"run" name:"run" help:"The run."`
	From   *int    `placeholder:"N" help:"Fork it: a new run gets the turns before turn N as they were, at no cost, and calls agents from there on."`
	Diff   string  `complete:"run" placeholder:"RUN2" help:"Show the first difference between the transcripts of the two runs."`
	MaxUSD *string `name:"max-usd" placeholder:"USD" help:"With --from: it pauses before it costs more; else as the run was begun."`
}

// Validate refuses no id.
func (v *replayVerb) Validate() error { return givenRun(v.ID) }

// Run replays.
func (v *replayVerb) Run(ctx context.Context, a *app) error {
	limit, err := budget(v.MaxUSD)
	switch {
	case err != nil:
		return err
	case v.From != nil && v.Diff != "":
		return &failure{exit: exitUsage, what: "--from and --diff exclude each other", next: "fork first; then compare the new run with the old one"}
	case v.From == nil && limit != nil:
		return &failure{exit: exitUsage, what: "--max-usd needs --from: nothing is spent otherwise", next: "leave it out"}
	case v.From != nil:
		return v.fork(ctx, a, limit)
	}
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	if v.Diff != "" {
		return compare(ctx, a, s.Store(), agentbus.RunID(v.ID), agentbus.RunID(v.Diff))
	}
	return v.replay(ctx, a, s)
}

// fork begins a new run with the first turns of this one.
func (v *replayVerb) fork(ctx context.Context, a *app, limit *agentbus.Micros) error {
	s, why, err := a.driving(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // what was acknowledged is durable already
	return a.converse(ctx, s, why, server.Start{
		Run: agentbus.NewRunID(), From: &server.Fork{Run: agentbus.RunID(v.ID), Turn: *v.From}, Authorization: a.token(), Budget: limit,
	})
}

// replay drives the run again against its record, and tells what came of it.
func (v *replayVerb) replay(ctx context.Context, a *app, s *server.Server) error {
	all, err := s.Replay(ctx, agentbus.RunID(v.ID))
	if err != nil {
		return err
	}
	var b strings.Builder
	var diverged error
	for i := range all {
		r := &all[i]
		became := "as recorded"
		if r.Divergence != nil {
			became = "diverges"
			if diverged == nil {
				diverged = &failure{
					exit: exitFailed, what: "the replay diverges at " + harmless(r.Divergence.String()),
					why: "the record was changed, or this program or a plan decides otherwise than then", next: "see agentbus events " + operand(agentbus.RunID(v.ID)),
				}
			}
		}
		fmt.Fprintf(&b, "conversation %s  %s  %s, %s  %s\n", r.Conversation, r.Execution, plural(r.Turns, "turn"), plural(r.Events, "event"), became)
	}
	report := struct {
		Run        agentbus.RunID  `json:"run"`
		Identical  bool            `json:"identical"`
		Executions []server.Replay `json:"executions"`
	}{agentbus.RunID(v.ID), diverged == nil, all}
	if err := a.answer(report, harmless(b.String())); err != nil {
		return err
	}
	return diverged
}

// A difference is where two transcripts part.
type difference struct {
	Runs [2]agentbus.RunID `json:"runs"`
	// Same is how many turns they have in common.
	Same  int                `json:"same"`
	Turns [2][]agentbus.Turn `json:"turns"` // the next one of each, if any
}

// compare shows the first difference of two transcripts: who spoke, or what was
// said.
func compare(ctx context.Context, a *app, s server.Store, one, other agentbus.RunID) error {
	d := difference{Runs: [2]agentbus.RunID{one, other}, Turns: [2][]agentbus.Turn{{}, {}}}
	var said [2][]agentbus.Turn
	for i, run := range d.Runs {
		var err error
		if said[i], err = transcript(ctx, s, run); err != nil {
			return err
		}
	}
	d.Same = agentbus.Common(said[0], said[1])
	var b strings.Builder
	fmt.Fprintf(&b, "the same %s\n", plural(d.Same, "turn"))
	parted := false
	for i := range said {
		if d.Same == len(said[i]) {
			fmt.Fprintf(&b, "%s  ends there\n", d.Runs[i])
			continue
		}
		t := said[i][d.Same]
		d.Turns[i], parted = []agentbus.Turn{t}, true
		fmt.Fprintf(&b, "%s  turn %d  [%s] %s\n", d.Runs[i], d.Same, t.Speaker, t.Reply.Text)
	}
	if err := a.answer(d, harmless(b.String())); err != nil || !parted {
		return err
	}
	return &failure{exit: exitFailed, what: fmt.Sprintf("the transcripts differ from turn %d on", d.Same), next: "see agentbus events " + operand(one) + ", and agentbus events " + operand(other)}
}

// transcript returns the turns of a run that are done, top level only.
func transcript(ctx context.Context, s server.Store, run agentbus.RunID) (turns []agentbus.Turn, err error) {
	executions, err := executionsOf(ctx, s, run)
	if err != nil {
		return nil, err
	}
	for t, err := range s.Turns(ctx, executions[0].ID) {
		if err != nil {
			return nil, err
		}
		if t.State == agentbus.TurnDone {
			turns = append(turns, t)
		}
	}
	return turns, nil
}
