package conversation

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/agentbus/agentbus"
)

// A fan is a step in which several participants speak at once (R20).
type fan struct {
	step     *Step
	branches []*branch // as the step names them

	open int     // how many have not ended
	last *branch // that ended; it is finished with the turn after the fan
	err  error   // of the journal

	stopped *agentbus.Error // what a branch was refused with: its run is over
}

// A branch is one turn of a fan.
type branch struct {
	voice
	at      int  // among the branches
	stands  bool // nothing is left to be done for its turn
	account *account
	before  agentbus.Micros    // its cost when it began
	hush    context.CancelFunc // has it speak no more
	asked   error              // what it asks, which is told when the others have ended
}

// newFan returns the branches of step as stored turns have them; the first has
// an index. What stands of them is decided by their states alone, so that every
// driver decides alike.
func newFan(step *Step, stored []agentbus.Turn, index int) *fan {
	f := &fan{step: step, branches: make([]*branch, len(step.Together))}
	for i := range f.branches {
		f.branches[i] = &branch{at: i, voice: voice{intent: &intent{}, branch: true}}
	}
	for i := range stored {
		at := stored[i].Index - index
		if at >= 0 && at < len(f.branches) && stored[i].Speaker == step.Together[at] {
			f.branches[at].turn = stored[i]
			f.branches[at].stands = stored[i].State == agentbus.TurnDone
		}
	}
	lost := f.count(agentbus.TurnFailed) == len(f.branches)
	for _, b := range f.branches {
		switch b.turn.State {
		case agentbus.TurnFailed:
			b.stands = f.met() || step.Join == JoinBestEffort && !lost
		case agentbus.TurnCancelled:
			b.stands = f.met()
		case agentbus.TurnDone, agentbus.TurnPending, agentbus.TurnWaiting:
		}
	}
	return f
}

// count returns how many branches have a state.
func (f *fan) count(s agentbus.TurnState) (n int) {
	for _, b := range f.branches {
		if b.turn.State == s {
			n++
		}
	}
	return n
}

// met reports whether nobody needs to speak any more.
func (f *fan) met() bool { return f.step.Join != JoinBestEffort && f.enough() }

// enough reports whether as many branches are done as the join needs.
func (f *fan) enough() bool {
	need, err := f.step.Join.need(len(f.branches))
	return err == nil && f.count(agentbus.TurnDone) >= need
}

// ended reports whether all branches are final, and the join was met.
func (f *fan) ended() bool {
	return f.enough() && len(f.rest()) == 0
}

// turns returns the turns of all branches.
func (f *fan) turns() []agentbus.Turn {
	turns := make([]agentbus.Turn, len(f.branches))
	for i, b := range f.branches {
		turns[i] = b.turn
	}
	return turns
}

// rest returns the branches that do not stand.
func (f *fan) rest() (rest []*branch) {
	for _, b := range f.branches {
		if !b.stands {
			rest = append(rest, b)
		}
	}
	return rest
}

// due returns those of them that are to speak, and have not.
func (f *fan) due() (due []*branch) {
	for _, b := range f.rest() {
		if b.asked == nil && !b.decided.waits {
			due = append(due, b)
		}
	}
	return due
}

// A Joined is the data of an [EventJoined], as JSON. Its turns stand without the
// run that their ids begin with, so that it is the same in every run (E9).
type Joined struct {
	Join      Join              `json:"join"`
	Done      int               `json:"done"`
	Failed    int               `json:"failed,omitempty"`
	Cancelled int               `json:"cancelled,omitempty"`
	Turns     []agentbus.TurnID `json:"turns"` // of its branches, in the order of the plan, such as t0.a
}

// outcome tells how a fan of a run came together.
func (f *fan) outcome(run agentbus.RunID) Joined {
	j := Joined{
		Join: cmp.Or(f.step.Join, JoinAll),
		Done: f.count(agentbus.TurnDone), Failed: f.count(agentbus.TurnFailed), Cancelled: f.count(agentbus.TurnCancelled),
	}
	for _, b := range f.branches {
		j.Turns = append(j.Turns, agentbus.TurnID(strings.TrimPrefix(string(b.turn.ID), string(run)+".")))
	}
	return j
}

// String describes the join in a line, such as "quorum:2 of 3: 2 done, 1
// cancelled".
func (j Joined) String() string {
	s := fmt.Sprintf("%s of %d: %d done", j.Join, len(j.Turns), j.Done)
	if j.Failed > 0 {
		s += fmt.Sprintf(", %d failed", j.Failed)
	}
	if j.Cancelled > 0 {
		s += fmt.Sprintf(", %d cancelled", j.Cancelled)
	}
	return s
}

// children tells what became of the branches, in the order of the step (C18).
func (f *fan) children() []agentbus.Child {
	all := make([]agentbus.Child, len(f.branches))
	for i, b := range f.branches {
		all[i] = b.child(f.step.Together[i])
	}
	return all
}

// child tells what became of a branch. One that waits tells what it waits for as its
// issuer wrote it, also when it was asked by an earlier driver.
func (b *branch) child(name agentbus.Speaker) agentbus.Child {
	c := agentbus.Child{Child: name, Outcome: agentbus.ChildCancelled}
	switch {
	case b.turn.State == agentbus.TurnDone:
		c.Outcome, c.Text = agentbus.ChildOK, b.turn.Reply.Text
	case b.asked != nil:
		e := agentbus.AsError(b.asked)
		c.Outcome, c.Code, c.Policy = agentbus.ChildPolicy, e.Code, e.Ask.Policy
	case b.decided.waits && !b.stands:
		c.Outcome, c.Code, c.Policy = agentbus.ChildPolicy, b.decided.code, b.decided.policy
	case b.turn.State == agentbus.TurnFailed && b.turn.Error.Policy != nil:
		c.Outcome, c.Code, c.Policy = agentbus.ChildPolicy, b.turn.Error.Code, b.turn.Error.Policy
	case b.turn.State == agentbus.TurnFailed:
		c.Outcome, c.Code = agentbus.ChildError, b.turn.Error.Code
	}
	return c
}

// failed returns the first branch that failed, in the order of the step.
func (f *fan) failed() *branch {
	for _, b := range f.branches {
		if b.turn.State == agentbus.TurnFailed {
			return b
		}
	}
	return nil
}

// fanOut returns the turns of a step of several, with the budget reserved for
// all that are still to be asked, or for none (R20).
func (d *driver) fanOut(step *Step) (*intent, *agentbus.Halt, error) {
	if err := d.fanFault(step); err != nil {
		return nil, nil, fmt.Errorf("%w of conversation %s: %w", errPlan, d.conversation.Name, err)
	}
	if width, left := len(step.Together), d.conversation.MaxTurns-len(d.turns); width > left {
		return nil, &agentbus.Halt{Kind: agentbus.HaltMaxTurns, Reason: fmt.Sprintf("%d turns are left, and %d participants speak at once", left, width)}, nil
	}
	f := newFan(step, d.openTurns(), d.execution.First+len(d.turns))
	var worst []agentbus.Micros
	var whose []agentbus.Speaker
	d.answered(f)
	for _, b := range f.branches {
		if p := &d.conversation.Participants[d.index(step.Together[b.at])]; !b.stands && !b.decided.waits && !f.met() {
			b.held = p.MaxCost
			worst, whose = append(worst, p.MaxCost), append(whose, p.Name)
		}
	}
	var all agentbus.Micros
	for _, w := range worst {
		all = sum(all, w)
	}
	if full := d.account.hold(worst...); full != nil {
		return nil, overBudget(full, all, whose...), nil
	}
	d.say(step.Say, step.Together...)
	for _, b := range f.branches {
		if b.stands {
			b.who = d.index(b.turn.Speaker)
			continue
		}
		now, err := d.intend(d.lineage, d.index(step.Together[b.at]), len(d.turns)+b.at, "")
		if err != nil {
			d.account.release(all)
			return nil, nil, err
		}
		now.held = b.held
		b.intent, b.before = now, now.turn.Cost
	}
	return &intent{fan: f, held: all}, nil, nil
}

// answered tells the branches of f what was decided of what they asked. Who goes on
// because of a decision has the branch called again that asked, and nobody else (R21):
// those that had failed stay so until the fan has ended without them.
func (d *driver) answered(f *fan) {
	decided := false
	for _, b := range f.branches {
		b.decided = d.decided[d.execution.First+len(d.turns)+b.at]
		decided = decided || askOf(&b.turn) != nil && len(b.decided.resolved) > 0
	}
	for _, b := range f.branches {
		b.stands = b.stands || decided && b.turn.State == agentbus.TurnFailed
	}
}

// fanFault returns what is wrong with a step of several, before any of them is
// asked.
func (d *driver) fanFault(step *Step) error {
	if n, limit := len(step.Together), d.conversation.maxWidth(); n > limit {
		return fmt.Errorf("it asks %d at once, and the limit is %d", n, limit)
	}
	if twice, ok := repeated(step.Together); ok {
		return fmt.Errorf("it asks %q twice at once", twice)
	}
	for _, s := range step.Together {
		if d.index(s) < 0 {
			return fmt.Errorf("%q is no participant", s)
		}
	}
	_, err := step.Join.need(len(step.Together))
	return err
}

// openTurns returns what the journal has of the step that has not ended.
func (d *driver) openTurns() (turns []agentbus.Turn) {
	for _, t := range d.carried {
		turns = append(turns, t)
	}
	return turns
}
