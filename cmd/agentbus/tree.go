package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// A node is a call and the calls that were made inside it.
type node struct {
	*agentbus.CallRecord
	Calls []*node `json:"calls,omitempty"`

	fan *fanOut // instead of a call: these were made at once
}

// A fanOut is a step of a conversation in which several spoke at once (R20).
type fanOut struct {
	Execution agentbus.ExecutionID `json:"execution"`
	Parent    agentbus.TurnID      `json:"parent,omitempty"` // that their turns were made in
	conversation.Joined
}

// toldOf yields the events of an execution: none, when they are too old to be kept.
func toldOf(ctx context.Context, s tracer, id agentbus.ExecutionID) iter.Seq2[agentbus.Event, error] {
	return func(yield func(agentbus.Event, error) bool) {
		for e, err := range s.Events(ctx, id, -1) {
			if agentbus.CodeOf(err) == agentbus.CodeReplyExpired || !yield(e, err) {
				return
			}
		}
	}
}

// fanOutsOf reads which turns of executions were spoken at once.
func fanOutsOf(ctx context.Context, s tracer, executions []agentbus.Execution) (fans []fanOut, err error) {
	for i := range executions {
		for e, err := range toldOf(ctx, s, executions[i].ID) {
			if err != nil {
				return nil, err
			}
			if e.Type != agentbus.EventJoined {
				continue
			}
			fan := fanOut{Execution: e.Execution, Parent: executions[i].Parent}
			if err := json.Unmarshal(e.Data, &fan.Joined); err != nil {
				return nil, fmt.Errorf("event %s: %w", e.ID, err)
			}
			for i, t := range fan.Turns {
				if t.Index(e.Run) < 0 { // older stores have it whole
					fan.Turns[i] = agentbus.TurnID(string(e.Run) + "." + string(t))
				}
			}
			fans = append(fans, fan)
		}
	}
	return fans, nil
}

// A deed is what an agent did in a turn: it called a tool, decided, handed over.
type deed struct {
	Turn   agentbus.TurnID `json:"turn"`
	Parent agentbus.TurnID `json:"parent,omitempty"` // of the conversation that the turn is of
	Type   string          `json:"type"`
	Agent  string          `json:"agent"`
	What   string          `json:"what"`
}

// of reports whether a call is the turn that d was done in.
func (d *deed) of(c *agentbus.CallRecord) bool {
	return d.Turn == c.TurnKey.ID && (d.Parent == c.Parent || strings.HasSuffix(string(d.Turn), "-relayed"))
}

// deedOf reads what an agent did; ok tells whether e is about that.
func deedOf(e *agentbus.Event, parent agentbus.TurnID) (d deed, ok bool) {
	switch e.Type {
	case agentbus.EventAgentToolCalled, agentbus.EventAgentToolReturned, agentbus.EventAgentHandoff, agentbus.EventAgentDecided, agentbus.EventOrchestratorDecided:
	default:
		return d, false
	}
	var by struct {
		Agent string `json:"agentId"`
		From  string `json:"fromAgentId"`
	}
	_ = json.Unmarshal(e.Data, &by) // what cannot be read is nobody's
	return deed{Turn: e.Turn, Parent: parent, Type: e.Type, Agent: cmp.Or(by.Agent, by.From), What: gist(e)}, true
}

// deedsOf reads what the agents of executions did, in the order of each.
func deedsOf(ctx context.Context, s tracer, executions []agentbus.Execution) (all []deed, err error) {
	for i := range executions {
		for e, err := range toldOf(ctx, s, executions[i].ID) {
			if err != nil {
				return nil, err
			}
			if d, ok := deedOf(&e, executions[i].Parent); ok {
				all = append(all, d)
			}
		}
	}
	return all, nil
}

// grouped puts the calls that were made at once under a node of their own.
func grouped(nodes []*node, fans []fanOut) (out []*node) {
	groups := map[*fanOut]*node{}
	for _, n := range nodes {
		n = &node{CallRecord: n.CallRecord, Calls: grouped(n.Calls, fans)}
		at := slices.IndexFunc(fans, func(f fanOut) bool { return f.Parent == n.Parent && slices.Contains(f.Turns, n.TurnKey.ID) })
		if at < 0 {
			out = append(out, n)
			continue
		}
		fan := &fans[at]
		if groups[fan] == nil {
			groups[fan] = &node{fan: fan}
			out = append(out, groups[fan])
		}
		groups[fan].Calls = append(groups[fan].Calls, n)
	}
	for _, n := range groups { // as the plan has them, whoever called first
		slices.SortStableFunc(n.Calls, func(x, y *node) int {
			return slices.Index(n.fan.Turns, x.TurnKey.ID) - slices.Index(n.fan.Turns, y.TurnKey.ID)
		})
	}
	return out
}

// treeOf arranges the calls of a run, in the order they were made, by who was
// made inside whom. A call whose enclosing turn is not among them stands at the
// top.
func treeOf(calls []agentbus.CallRecord) []*node {
	keys := make([]agentbus.TurnKey, len(calls))
	for i := range calls {
		keys[i] = calls[i].TurnKey
	}
	var top []*node
	nodes := make([]*node, len(calls))
	for i, inside := range agentbus.Enclosing(keys) {
		nodes[i] = &node{CallRecord: &calls[i]}
		if inside < 0 {
			top = append(top, nodes[i])
		} else {
			nodes[inside].Calls = append(nodes[inside].Calls, nodes[i])
		}
	}
	return top
}

// totals are what a run came to, summed over its calls.
type totals struct {
	Calls    int             `json:"calls"`
	Refusals int             `json:"refusals"` // repeats included
	Replays  int             `json:"replays"`  // answered without executing
	Attempts int             `json:"attempts"`
	Input    int64           `json:"input_tokens"`
	Output   int64           `json:"output_tokens"`
	Cost     agentbus.Micros `json:"cost_micros"`
	Unbilled agentbus.Micros `json:"unbilled_micros"`
	Depth    int             `json:"max_depth"`
	// ByPayer is what each payer was charged.
	ByPayer map[agentbus.Payer]agentbus.Micros `json:"by_payer_micros"`
}

func sum(calls []agentbus.CallRecord) totals {
	t := totals{ByPayer: map[agentbus.Payer]agentbus.Micros{}}
	for i := range calls {
		c := &calls[i]
		t.Depth = max(t.Depth, c.Depth)
		if c.State == agentbus.CallRefused {
			t.Refusals += 1 + c.Repeats
			continue
		}
		t.Calls++
		t.Replays += c.Replays
		t.Attempts += c.Attempts
		t.Input += c.Usage.InputTokens
		t.Output += c.Usage.OutputTokens
		t.Unbilled += c.Unbilled
		t.Cost += c.Cost
		t.ByPayer[c.Payer] += c.Cost
	}
	return t
}

func (t totals) String() string {
	parts := []string{
		plural(t.Calls, "call"), plural(t.Refusals, "refusal"), fmt.Sprintf("%d answered from memory", t.Replays),
		fmt.Sprintf("tokens %d in, %d out", t.Input, t.Output), "$" + t.Cost.USD() + " charged",
	}
	payers := make([]string, 0, len(t.ByPayer))
	for p, m := range t.ByPayer {
		payers = append(payers, fmt.Sprintf("%s $%s", p, m.USD()))
	}
	slices.Sort(payers)
	if len(payers) > 0 {
		parts = append(parts, "paid by "+strings.Join(payers, ", "))
	}
	return strings.Join(parts, " · ")
}

// printTree writes the tree, a line a call.
func printTree(b *strings.Builder, p paint, nodes []*node, deeds []deed, indent string) {
	for i, n := range nodes {
		branch, below := "├─ ", "│  "
		if i == len(nodes)-1 {
			branch, below = "└─ ", "   "
		}
		if n.fan != nil {
			b.WriteString(indent + branch + p.dim("at once: "+n.fan.String()) + "\n")
		} else {
			b.WriteString(indent + branch + line(p, n.CallRecord) + "\n")
			for i := range deeds {
				if d := &deeds[i]; d.of(n.CallRecord) {
					b.WriteString(indent + below + p.dim("· "+harmless(d.Agent+"  "+strings.TrimPrefix(d.Type, "agent.")+"  "+d.What)) + "\n")
				}
			}
		}
		printTree(b, p, n.Calls, deeds, indent+below)
	}
}

// line is one call as people read it.
func line(p paint, c *agentbus.CallRecord) string {
	who := harmless(c.Agent) // a caller may have named anything
	if c.Speaker != "" && string(c.Speaker) != c.Agent {
		who += " as " + c.Speaker.Wire()
	}
	head := fmt.Sprintf("%s  %s  depth %d  ", p.bold(who), shortTurn(c), c.Depth)
	switch c.State {
	case agentbus.CallRefused:
		s := head + p.red("refused "+string(c.Code)) + "  " + harmless(c.Message)
		if c.Repeats > 0 {
			s += fmt.Sprintf("  (asked %d times, no work done)", c.Repeats+1)
		}
		return s
	case agentbus.CallVoided:
		how := p.red("failed " + string(c.Code))
		if c.CallerLeft() {
			how = p.dim("stopped") // which tells nothing against its agent (G14)
		}
		return head + how + "  " + harmless(c.Message) + "  " + p.dim(tries(c)+"not charged")
	case agentbus.CallExecuting:
		return head + p.dim("executing")
	case agentbus.CallPassed:
		return head + fmt.Sprintf("passed %d  ", c.Status) + p.dim("not a call, not charged")
	case agentbus.CallSettled:
	}
	estimated := ""
	if c.Usage.Estimated {
		estimated = "est. "
	}
	s := head + fmt.Sprintf("%d  tokens %s%d→%d  $%s  ", c.Status, estimated, c.Usage.InputTokens, c.Usage.OutputTokens, c.Cost.USD())
	return s + p.dim(tries(c)+"payer "+string(c.Payer))
}

// tries tells how often a call was executed and asked for, where that is more
// than once.
func tries(c *agentbus.CallRecord) string {
	var s string
	if c.Attempts > 1 {
		s = fmt.Sprintf("×%d, ", c.Attempts)
	}
	if c.Replays > 0 {
		s += fmt.Sprintf("asked %d times, ", c.Replays+1)
	}
	if s != "" && c.State == agentbus.CallSettled {
		s += "charged once, "
	}
	return s
}

// shortTurn leaves the run out of a turn id: t0.researcher.
func shortTurn(c *agentbus.CallRecord) string {
	if rest, ok := strings.CutPrefix(string(c.TurnKey.ID), string(c.Run)+"."); ok {
		return rest
	}
	if c.TurnKey.ID == "" {
		return "(no turn)"
	}
	return string(c.TurnKey.ID)
}

// paint colours text for a terminal, and leaves it as it is elsewhere.
type paint bool

func (p paint) wrap(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) bold(s string) string { return p.wrap("1", s) }
func (p paint) dim(s string) string  { return p.wrap("2", s) }
func (p paint) red(s string) string  { return p.wrap("31", s) }
