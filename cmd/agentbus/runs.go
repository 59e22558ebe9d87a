package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
)

// runsVerb lists runs.
type runsVerb struct {
	Limit  int    `default:"20" help:"At most this many."`
	Before string `complete:"run" placeholder:"RUN" help:"Go on behind this run, the last one of the page before."`
}

// Run prints the newest runs.
func (v *runsVerb) Run(ctx context.Context, a *app) error {
	if v.Limit < 1 || v.Limit > 10_000 {
		return &failure{exit: exitUsage, what: "--limit must be 1 to 10000", next: "page with --before"}
	}
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	runs, err := s.Store().RunSummaries(ctx, agentbus.RunFilter{}, v.Limit, agentbus.RunID(v.Before))
	if err != nil {
		return err
	}
	if runs == nil {
		runs = []agentbus.RunSummary{} // [] in JSON
	}
	if len(runs) == 0 && v.Before != "" {
		return a.answer(runs, "there are no runs behind "+harmless(v.Before)+"\n")
	}
	if len(runs) == 0 {
		return a.answer(runs, "there are no runs; next: agentbus run CONVERSATION \"TEXT\", or call an agent through agentbus serve\n")
	}
	rows := [][]string{{"RUN", "STATE", "WHAT", "PAYER", "TURNS", "CALLS", "DEPTH", "COST", "REPLAYS", "REFUSALS", "BEGAN"}}
	for _, r := range runs {
		rows = append(rows, []string{
			string(r.Run), stateOf(&r), whatOf(&r), dash(string(r.Payer)), strconv.Itoa(r.Turns), strconv.Itoa(r.Calls),
			strconv.Itoa(r.MaxDepth), "$" + r.Cost.USD(), strconv.Itoa(r.Replays), strconv.Itoa(r.Refusals), when(r.Began),
		})
	}
	return a.answer(runs, a.listing(rows))
}

func stateOf(r *agentbus.RunSummary) string {
	switch {
	case r.State == "":
		return string(r.Standing()) // only called through the gateway: it stands as its calls do
	case r.State == agentbus.RunPaused && r.Halt != nil && r.Halt.Kind == agentbus.HaltWaitingAuth:
		return "waiting-auth"
	case r.State == agentbus.RunPaused && r.Halt != nil && r.Halt.Kind == agentbus.HaltWaiting:
		return "waiting"
	case r.State == agentbus.RunPaused && r.Halt != nil:
		return "paused: " + string(r.Halt.Kind)
	}
	return string(r.State)
}

// whatOf says what a run performs: the conversation, or the agent that was called.
func whatOf(r *agentbus.RunSummary) string {
	if r.Conversation == "" && r.Agent != "" {
		return "call of " + r.Agent
	}
	return dash(r.Conversation)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// traceVerb shows who called whom in a run, and who paid.
type traceVerb struct {
	ID       string `arg:"" complete:"run" name:"run" help:"The run; or the word verify, with the run behind it."`
	Verified string `arg:"" complete:"run" optional:"" name:"verified" help:"Behind verify: the run whose signed hops are checked."`
	Follow   bool   `help:"Show a conversation as it goes on, whoever drives it, until it halts: a live tree on a terminal, a line an event elsewhere; exit as agentbus run does."`
}

// A trace is all that is known of a run.
type trace struct {
	Run        agentbus.RunID       `json:"run"`
	Executions []agentbus.Execution `json:"executions"` // drivers of this store, top level first
	FanOuts    []fanOut             `json:"fan_outs,omitempty"`
	Calls      []*node              `json:"calls"` // by who was made inside whom
	Deeds      []deed               `json:"deeds,omitempty"`
	Interrupts []admin.Asking       `json:"interrupts,omitempty"`
	Totals     totals               `json:"totals"`
}

// Validate refuses no id.
func (v *traceVerb) Validate() error { return givenRun(v.ID) }

// Run prints the tree of a run.
func (v *traceVerb) Run(ctx context.Context, a *app) error {
	switch {
	case v.ID == "verify" && v.Verified != "":
		return v.verify(ctx, a)
	case v.Verified != "":
		return &failure{exit: exitUsage, what: "there is one run too many", next: "write agentbus trace RUN, or agentbus trace verify RUN"}
	}
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	if v.Follow {
		return v.follow(ctx, a, s)
	}
	t, err := traceOf(ctx, s.Store(), agentbus.RunID(v.ID))
	if err != nil {
		return err
	}
	return a.answer(t, t.text(a.colours(a.stdout)))
}

type tracer interface {
	admin.Executions
	admin.Parents

	Calls(ctx context.Context, run agentbus.RunID) ([]agentbus.CallRecord, error)
	Executions(ctx context.Context, run agentbus.RunID) ([]agentbus.Execution, error)
	Events(ctx context.Context, id agentbus.ExecutionID, after agentbus.Position) iter.Seq2[agentbus.Event, error]
	Interrupts(ctx context.Context, q agentbus.InterruptQuery) ([]agentbus.Interrupt, error)
}

// maxTraced is how many interrupts of a run a trace shows.
const maxTraced = 1000

func traceOf(ctx context.Context, s tracer, run agentbus.RunID) (*trace, error) {
	calls, err := s.Calls(ctx, run)
	if err != nil {
		return nil, err
	}
	executions, err := s.Executions(ctx, run)
	if err != nil {
		return nil, err
	}
	if len(calls) == 0 && len(executions) == 0 {
		return nil, &agentbus.Error{
			Code: agentbus.CodeRunNotFound, Message: "there is no run " + harmless(string(run)) + " in this store",
			Explain: &agentbus.Explain{Next: "see agentbus runs; --config names another store"},
		}
	}
	fans, err := fanOutsOf(ctx, s, executions)
	if err != nil {
		return nil, err
	}
	deeds, err := deedsOf(ctx, s, executions)
	if err != nil {
		return nil, err
	}
	found, err := s.Interrupts(ctx, agentbus.InterruptQuery{Run: run, All: true, Limit: maxTraced})
	if err != nil {
		return nil, err
	}
	asked, err := admin.Askings(ctx, s, s, found)
	if err != nil {
		return nil, err
	}
	return &trace{Run: run, Executions: executions, FanOuts: fans, Calls: treeOf(calls), Deeds: deeds, Interrupts: asked, Totals: sum(calls)}, nil
}

// text is the trace as people read it.
func (t *trace) text(p paint) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s\n", p.bold(string(t.Run)))
	for _, e := range t.Executions {
		state := string(e.State)
		if e.Halt != nil && e.State != agentbus.RunRunning {
			state += ": " + e.Halt.String()
		}
		inside := ""
		if e.Parent != "" {
			inside = " inside " + strings.TrimPrefix(string(e.Parent), string(t.Run)+".")
		}
		fmt.Fprintf(&b, "conversation %s%s  %s  %s\n", e.Conversation, inside, plural(e.Turns, "turn"), state)
	}
	printTree(&b, p, grouped(t.Calls, t.FanOuts), t.Deeds, "")
	for n := range t.Interrupts {
		i := &t.Interrupts[n]
		decision := decisionOf(&i.Interrupt)
		if i.Open() {
			decision = p.bold("waits until " + when(i.Expires))
		}
		fmt.Fprintf(&b, "interrupt %s  %s  %s: %s  %s\n", i.ID, i.Ask.Kind, wayOf(i), harmless(i.Ask.Title), decision)
	}
	fmt.Fprintf(&b, "%s\n", t.Totals)
	if p {
		return b.String()
	}
	return harmless(b.String())
}
