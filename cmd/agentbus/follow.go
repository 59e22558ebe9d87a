package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/server"
)

// A follower reads the events of a run as they come.
type follower struct {
	store server.Store
	run   agentbus.RunID
	read  map[agentbus.ExecutionID]agentbus.Position // the next position of each
	// top is the top-level execution as it stood before its events were read.
	top agentbus.Execution
	// seen gets the calls that are being made; nil: nobody looks at them.
	seen   func([]agentbus.CallRecord)
	looked int // how often it was asked for
}

// A news is an event and where it happened.
type news struct {
	agentbus.Event

	execution *agentbus.Execution
	latest    time.Time // of what its execution told so far
}

// news returns the events that were not returned before, of all executions: those of
// each in their order, whatever the clock did, and by time among each other.
func (f *follower) news(ctx context.Context) (all []news, err error) {
	executions, err := f.store.Executions(ctx, f.run)
	if err != nil {
		return nil, err
	}
	if f.read == nil {
		f.read = map[agentbus.ExecutionID]agentbus.Position{}
	}
	for i := range executions {
		e := &executions[i]
		if i == 0 {
			f.top = *e
		}
		var latest time.Time
		for got, err := range f.store.Events(ctx, e.ID, f.read[e.ID]-1) {
			if err != nil {
				return nil, err
			}
			f.read[e.ID] = got.Position + 1
			if got.At.After(latest) {
				latest = got.At
			}
			all = append(all, news{Event: got, execution: e, latest: latest})
		}
	}
	slices.SortStableFunc(all, func(a, b news) int { return a.latest.Compare(b.latest) })
	return all, nil
}

// pollEvery is how often a follower looks.
const pollEvery = 200 * time.Millisecond

// follow shows a run until it halts, whoever drives it: a live tree on a terminal,
// a line an event elsewhere; then the whole tree. It ends as the run did.
func (v *traceVerb) follow(ctx context.Context, a *app, s *server.Server) error {
	f := follower{store: s.Store(), run: agentbus.RunID(v.ID)}
	executions, err := executionsOf(ctx, f.store, f.run)
	if err != nil {
		return err
	}
	show, end := func(n *news) error { return a.tell(n) }, func() {}
	if l := a.live(); l != nil {
		l.limit, l.began = limited(s.CapOf(executions[0])), executions[0].Began
		w := watch{live: l, clock: true}
		l.calls = w.calls
		show, end = w.news, l.turning()
		f.seen = w.see
	}
	err = f.all(ctx, show)
	end()
	if err != nil {
		return err
	}
	return v.ended(ctx, a, f.store, &f.top)
}

// all gives the events of a run to show until it has halted. It fails when nobody
// drives the run any more.
func (f *follower) all(ctx context.Context, show func(*news) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		events, err := f.news(ctx)
		if err != nil {
			return err
		}
		for i := range events {
			if err := show(&events[i]); err != nil {
				return err
			}
		}
		if f.top.State != agentbus.RunRunning && len(events) == 0 {
			return nil
		}
		if l := f.top.Lease; f.top.State == agentbus.RunRunning && !l.Expires.IsZero() && time.Now().After(l.Expires) {
			return &failure{exit: exitFailed, what: "nobody drives run " + string(f.run) + " any more", why: "its lease has ended", next: "agentbus resume " + operand(f.run)}
		}
		if err := f.look(ctx, len(events) > 0); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lookEvery is how often the calls of a run are read while it tells nothing: the
// store reads all of them for that.
const lookEvery = 5

// look shows which calls are being made, where somebody sees them.
func (f *follower) look(ctx context.Context, told bool) error {
	if f.looked++; f.seen == nil || !told && f.looked%lookEvery != 0 {
		return nil
	}
	calls, err := f.store.Calls(ctx, f.run)
	if err != nil {
		return err
	}
	f.seen(slices.DeleteFunc(calls, func(c agentbus.CallRecord) bool { return c.State != agentbus.CallExecuting }))
	return nil
}

// tell prints an event as one line.
func (a *app) tell(n *news) error {
	if a.JSON {
		return (&eventsVerb{}).print(a, &n.Event)
	}
	line := n.line(a.colours(a.stdout))
	if line == "" {
		return nil
	}
	_, err := io.WriteString(a.stdout, line+"\n")
	return err
}

// line is an event as people read it, indented as deep as it happened; "" when it
// says no more than those around it.
func (n *news) line(p paint) string {
	if quiet(n.Type) {
		return ""
	}
	what := strings.TrimPrefix(n.Type, "agentbus.")
	if n.Type == agentbus.EventNodeFailed || n.Type == agentbus.EventRunFailed {
		what = p.red(what)
	}
	who := n.execution.Conversation
	if n.Turn != "" {
		who = strings.TrimPrefix(string(n.Turn), string(n.Run)+".")
	}
	return fmt.Sprintf("%s%s  %s  %s", strings.Repeat("  ", n.execution.Depth), p.bold(harmless(who)), what, p.dim(harmless(gist(&n.Event))))
}

// quiet reports whether events of a type say no more than those around them.
func quiet(eventType string) bool {
	switch eventType {
	case agentbus.EventNodeStarted, agentbus.EventInvocationStarted, agentbus.EventInvocationCompleted, agentbus.EventProviderUsage, agentbus.EventOutputChunk,
		agentbus.EventAgentReasoningDelta, agentbus.EventConversationExchanged, agentbus.EventChannelWritten, agentbus.EventConversationOpened, agentbus.EventConversationClosed:
		return true
	}
	return false
}

// told is what the data of an event may hold that is worth a few words.
type told struct {
	Reasoning string              `json:"reasoning"`
	ToolName  string              `json:"toolName"`
	Status    string              `json:"status"`
	From      string              `json:"fromAgentId"`
	To        string              `json:"toAgentId"`
	Error     agentbus.EventError `json:"error"`
	Decision  json.RawMessage     `json:"decision"`
	Attempt   int                 `json:"attempt"`
	Bus       struct {
		Attempts int             `json:"attempts"`
		Cost     agentbus.Micros `json:"cost_micros"`
		Usage    *agentbus.Usage `json:"usage"`
		Replayed bool            `json:"replayed"`
		Turns    int             `json:"turns"`
		Ask      *agentbus.Ask   `json:"ask"`
		Halt     *agentbus.Halt  `json:"halt"`
		Resolved []struct {
			Interrupt agentbus.InterruptID `json:"interrupt"`
			Decision  agentbus.Decision    `json:"decision"`
			By        string               `json:"by"`
		} `json:"resolved"`
	} `json:"agentbus"`
}

// gist is what the data of an event come to in a few words.
func gist(e *agentbus.Event) string {
	var d told
	if json.Unmarshal(e.Data, &d) != nil {
		return ""
	}
	switch {
	case d.Bus.Halt != nil:
		return d.Bus.Halt.String()
	case d.Bus.Ask != nil:
		return fmt.Sprintf("%s  %s", d.Bus.Ask.Title, d.Bus.Ask.Interrupts)
	case len(d.Bus.Resolved) > 0:
		r := d.Bus.Resolved[0]
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Interrupt, r.Decision, r.By))
	case e.Type == agentbus.EventNodeCompleted:
		return d.completed()
	case e.Type == agentbus.EventRunResumed:
		return "after " + plural(d.Bus.Turns, "turn")
	}
	return d.agents(e.Type)
}

// completed is what a turn took.
func (d *told) completed() string {
	b := &d.Bus
	s := "$" + b.Cost.USD()
	if b.Usage != nil {
		s = fmt.Sprintf("tokens %d→%d  ", b.Usage.InputTokens, b.Usage.OutputTokens) + s
	}
	if b.Attempts > 1 {
		s += fmt.Sprintf("  %d attempts", b.Attempts)
	}
	if b.Replayed {
		s += "  from memory"
	}
	return s
}

// agents is what an agent did.
func (d *told) agents(eventType string) string {
	switch eventType {
	case agentbus.EventNodeFailed, agentbus.EventRunFailed:
		return d.Error.Code + "  " + d.Error.Message
	case agentbus.EventNodeRetried:
		return fmt.Sprintf("attempt %d", d.Attempt+1)
	case agentbus.EventAgentReasoned:
		return inALine(d.Reasoning)
	case agentbus.EventAgentToolCalled:
		return d.ToolName
	case agentbus.EventAgentToolReturned:
		return strings.TrimSpace(d.ToolName + "  " + d.Status + "  " + d.Error.Code)
	case agentbus.EventAgentHandoff:
		return d.From + " → " + d.To
	case agentbus.EventAgentDecided, agentbus.EventOrchestratorDecided:
		return inALine(string(d.Decision))
	}
	return ""
}

// inALine is s in a line.
func inALine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}

// ended prints the tree of a run that has halted, and ends as the run did.
func (v *traceVerb) ended(ctx context.Context, a *app, s server.Store, top *agentbus.Execution) error {
	if !a.JSON {
		t, err := traceOf(ctx, s, agentbus.RunID(v.ID))
		if err != nil {
			return err
		}
		if err := a.answer(t, t.text(a.colours(a.stdout))); err != nil {
			return err
		}
	}
	if top.Halt == nil {
		return nil
	}
	return halted(ctx, &conversation.Result{Run: top.Run, Execution: top.ID, Halt: *top.Halt}, "", "")
}
