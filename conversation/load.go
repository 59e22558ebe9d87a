package conversation

import (
	"context"
	"fmt"

	"github.com/agentbus/agentbus"
)

// load reads the journal: the only memory there is.
func (d *driver) load(ctx context.Context) error {
	d.begin(d.execution.Seed)
	var stored []agentbus.Turn
	for t, err := range d.options.Journal.Turns(ctx, d.execution.ID) {
		if err != nil {
			return fmt.Errorf("read the turns of run %s: %w", d.execution.ID, err)
		}
		d.spent = sum(d.spent, t.Cost)
		stored = append(stored, t)
	}
	if err := d.adopt(stored); err != nil {
		return err
	}
	if err := d.decisions(ctx); err != nil {
		return err
	}
	d.account.open(d.spent)
	return nil
}

// adopt takes over the turns of steps that have ended, and carries those of one
// that has not. The plan must agree with them, since it is pure, unless it is
// another plan and that was forced.
func (d *driver) adopt(stored []agentbus.Turn) error {
	for len(stored) > 0 {
		step, err := d.next()
		if err != nil {
			return fmt.Errorf("plan of conversation %s: %w", d.conversation.Name, err)
		}
		index := d.execution.First + len(d.turns)
		if d.isFan(&step, stored) {
			f := newFan(&step, stored, index)
			if !f.ended() {
				break
			}
			d.say(step.Say, step.Together...)
			d.heard(f.turns())
			d.children = f.children()
			stored = stored[len(step.Together):]
			continue
		}
		t := &stored[0]
		if t.State != agentbus.TurnDone {
			break
		}
		if n := len(d.turns); n > 0 {
			step = step.taken(t, &d.turns[n-1])
		}
		if t.Index != index || step.Speaker != t.Speaker && !d.options.Force {
			return d.disagrees(t, &step)
		}
		if step.Speaker == t.Speaker {
			d.say(step.Say, t.Speaker)
		}
		d.heard(stored[:1])
		stored = stored[1:]
	}
	d.carried = make(map[int]agentbus.Turn, len(stored))
	for i := range stored {
		d.carried[stored[i].Index] = stored[i]
	}
	return nil
}

// isFan reports whether step is one of several turns, to which stored ones can
// belong. Those of another plan are taken one by one, when that is forced.
func (d *driver) isFan(step *Step, stored []agentbus.Turn) bool {
	if len(step.Together) == 0 || !d.options.Force {
		return len(step.Together) > 0
	}
	at := stored[0].Index - d.execution.First - len(d.turns)
	return at >= 0 && at < len(step.Together) && step.Together[at] == stored[0].Speaker
}

// disagrees is what a turn is refused with that the plan does not know.
func (d *driver) disagrees(t *agentbus.Turn, step *Step) error {
	return &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: fmt.Sprintf("turn %d of run %s was spoken by %q, and the plan names %q", t.Index, d.execution.ID, t.Speaker, step.Speaker),
		Explain: &agentbus.Explain{Rule: "R15", Next: "a plan must be pure; resume with the plan the run was begun with, or force it"},
	}
}

// heard takes the turns of a step that has ended: all participants hear what
// was said, in order.
func (d *driver) heard(turns []agentbus.Turn) {
	d.latest = len(d.turns)
	for i := range turns {
		if turns[i].State == agentbus.TurnDone {
			d.tokens = sum(d.tokens, taken(&turns[i].Reply))
			d.said(d.index(turns[i].Speaker), &turns[i])
		}
	}
	d.turns = append(d.turns, turns...)
}

// say tells participants what their plan says to them.
func (d *driver) say(text string, to ...agentbus.Speaker) {
	if text == "" {
		return
	}
	for _, s := range to {
		if who := d.index(s); who >= 0 {
			d.sent[who].add(agentbus.Message{Role: agentbus.RoleUser, Content: text})
		}
	}
}
