package conversation

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/agentbus/agentbus"
)

// intendIn makes the next turn, inside of the one before it where step says so.
func (d *driver) intendIn(step *Step, who int) (*intent, error) {
	behind := len(d.turns)
	if !step.Inside {
		return d.intend(d.lineage, who, behind, "")
	}
	from, err := d.lineageOf(behind - 1)
	if err != nil {
		return nil, err
	}
	// A conversation that answered the turn before has turns inside of it too.
	next, err := d.intend(from, who, behind, "-relayed")
	if err == nil {
		next.relayed = true
	}
	return next, err
}

// errElsewhere is why a turn is not relayed that was begun otherwise before.
var errElsewhere = errors.New("the journal has another turn")

// relay decides whether a step that is made inside of the turn before it is: what
// the journal has holds, and a turn at the last hop, or at the limit of depth,
// calls nobody (C7, C8). It is told with the turn.
func (d *driver) relay(step *Step) {
	if !step.Inside {
		return
	}
	why := d.mayNotCall(step)
	if why == nil {
		return
	}
	type refused struct {
		Speaker   agentbus.Speaker `json:"speaker"`
		Mentioned agentbus.Speaker `json:"mentioned"`
		Code      agentbus.Code    `json:"code"`
	}
	if last := len(d.turns) - 1; last >= 0 && !errors.Is(why, errElsewhere) {
		t := &d.turns[last]
		e := d.event(agentbus.EventMentionRefused, t.ID, refused{t.Speaker, step.Speaker, agentbus.CodeOf(why)})
		d.refused = append(d.refused, e)
	}
	step.Speaker, step.Inside = step.Instead, false
}

// mayNotCall returns why the last turn calls nobody, where a step is to be made inside
// of it; nil when it does.
func (d *driver) mayNotCall(step *Step) error {
	behind := len(d.turns)
	if behind == 0 {
		return errElsewhere
	}
	id := d.turns[behind-1].ID
	if d.options.refused != nil {
		return d.options.refused(id, d.execution.First+behind, step)
	}
	if c, begun := d.carried[d.execution.First+behind]; begun {
		if c.Parent != id {
			return errElsewhere
		}
		return nil
	}
	l, err := d.lineageOf(behind - 1)
	if err == nil {
		l, err = l.Next(id, "")
	}
	return cmp.Or(err, l.CheckDepth(d.options.MaxDepth))
}

// lineageOf returns that of the turn at a place, from which the calls inside of
// it are made: on the credential of the run, since the driver makes them.
func (d *driver) lineageOf(at int) (agentbus.Lineage, error) {
	from, t := d.lineage, &d.turns[at]
	if inside(d.turns, at) {
		var err error
		if from, err = d.lineageOf(at - 1); err != nil { // as deep as the chain is long
			return from, err
		}
	}
	return from.Next(t.ID, t.Speaker)
}

// inside reports whether the turn at a place was relayed: it was made inside of the one
// before it.
func inside(turns []agentbus.Turn, at int) bool {
	return at > 0 && turns[at].Parent == turns[at-1].ID
}

// taken returns a step as the turn has it that was taken for it.
func (s Step) taken(t, last *agentbus.Turn) Step {
	if s.Inside && t.Parent != last.ID {
		s.Speaker, s.Inside = s.Instead, false
	}
	return s
}

// relays reports whether mentions in replies are relayed (C14).
func (d *driver) relays() bool {
	_, is := d.plan.(Relay)
	return is
}

// refused tells why a turn that mentioned somebody called nobody, as it is
// recorded: its chain is no part of the record. Each drive may have had another
// limit, and only the one that finished the turn tells of a mention that it refused;
// one that halted before the step began tells who would have spoken.
func (h *rehearsal) refused(id agentbus.TurnID, next int, step *Step) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	here, ever := h.refusal(id, h.next, h.end), h.refusal(id, 0, len(h.record.Events))
	t, begun := h.turns[next]
	halted := h.haltedAt(next)
	switch {
	case here != nil:
		return here
	case halted == string(step.Instead):
		return errElsewhere
	case halted == string(step.Speaker):
		return nil
	case begun && t.Parent != id && ever == nil:
		return errElsewhere
	case begun && t.Parent == id:
		return nil
	}
	return ever
}

// haltedAt returns whose turn a drive halted at, before the turn of an index began;
// "" when it halted otherwise.
func (h *rehearsal) haltedAt(next int) string {
	if h.halt == nil || h.record.Execution.First+h.halt.Turns != next {
		return ""
	}
	switch h.halt.Kind {
	case agentbus.HaltBudget, agentbus.HaltRecursionLimit:
		return h.halt.Participant
	default: // it halted in the turn, or whoever would have spoken
		return ""
	}
}

// refusal returns what the events from one to another tell of a mention of a
// turn that was not relayed; nil when they tell nothing.
func (h *rehearsal) refusal(id agentbus.TurnID, from, to int) error {
	for _, e := range h.record.Events[from:to] {
		var data struct {
			Code agentbus.Code `json:"code"`
		}
		if e.Type == agentbus.EventMentionRefused && e.Turn == id && json.Unmarshal(e.Data, &data) == nil {
			return &agentbus.Error{Code: data.Code}
		}
	}
	return nil
}
