package conversation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

const (
	// DefaultAskTimeout is how long an interrupt waits unless somebody says
	// otherwise.
	DefaultAskTimeout = 24 * time.Hour
	// maxAsk bounds what is kept of an Ask, in bytes.
	maxAsk = 64 << 10
	// maxTitle bounds what an event says of it.
	maxTitle = 256
)

// asks reports whether an answer ended with something that its backend wants to
// be told (R22), rather than failed.
func asks(failure error) bool {
	e, ours := errors.AsType[*agentbus.Error](failure)
	return ours && e.Ask != nil && (e.Code == agentbus.CodeInputRequired || e.Code == agentbus.CodePaymentRequired)
}

// askOf returns what the backend of a stored turn wants to be told, or nil.
func askOf(t *agentbus.Turn) *agentbus.Ask {
	if t.Error == nil || t.Error.Ask == nil || len(t.Error.Ask.Interrupts) == 0 {
		return nil
	}
	return t.Error.Ask
}

// What was decided of what a turn asks. The zero value is of one that asks
// nothing.
type decided struct {
	waits    bool                 // nothing was decided
	kind     agentbus.AskKind     // of what it asks
	code     agentbus.Code        // of what it ended with that waits
	policy   json.RawMessage      // that it waits for, as it came; nil: none
	own      bool                 // it was asked here, not by somebody below
	resolved []agentbus.Interrupt // that were
}

// answer returns the resolution for the backend that asked; when that was not the
// one that is called, but somebody below it, no more than the decision; nil when
// there is none.
func (d *decided) answer() *agentbus.Resolution {
	switch {
	case len(d.resolved) == 0:
		return nil
	case !d.own:
		return &agentbus.Resolution{Decision: d.resolved[0].Resolution.Decision}
	}
	return d.resolved[0].Answer()
}

// ruleRejected marks the error of a decision that was rejected: it ends the run,
// whatever else an error does (E32).
const ruleRejected = "E32"

// rejected reports whether e is one.
func rejected(e *agentbus.Error) bool { return e.Explain != nil && e.Explain.Rule == ruleRejected }

// refused returns why the backend that asked is not called again, or nil, where
// then is what that does to the run. What somebody below has asked is theirs to
// fail.
func (d *decided) refused(then OnHalt) error {
	r := d.answer()
	if r == nil || !d.own || r.Decision == agentbus.DecisionGranted {
		return nil
	}
	if d.kind == agentbus.AskLowConfidence {
		return &agentbus.Error{
			Code: agentbus.CodeForbidden, Message: "its decision was rejected",
			Explain: &agentbus.Explain{Rule: ruleRejected, Observed: string(r.Decision), Next: "begin another run to have it decide again"},
		}
	}
	message := "what it asked for was denied"
	if r.Decision == agentbus.DecisionExpired {
		message = "nobody decided in time on what it asked for, which counts as denied"
	}
	next := "resume the run to be asked again"
	if then == OnHaltFail {
		next = "begin another run to be asked again"
	}
	return &agentbus.Error{
		Code: agentbus.CodeForbidden, Message: message,
		Explain: &agentbus.Explain{Rule: "R22", Observed: string(r.Decision), Next: next},
	}
}

// decide reads what was decided of what the turns of the open step ask.
func (d *driver) decisions(ctx context.Context) error {
	d.decided = map[int]decided{}
	for index, t := range d.carried {
		ask := askOf(&t)
		if ask == nil {
			continue
		}
		of := decided{
			waits: true, kind: ask.Kind, code: t.Error.Code,
			own: slices.Contains(ask.Interrupts, agentbus.InterruptOf(d.execution.ID, t.ID, t.Attempts)),
		}
		for _, id := range ask.Interrupts {
			i, found, err := d.options.Runs.Interrupt(ctx, id)
			if err != nil {
				return fmt.Errorf("read interrupt %s: %w", id, err)
			}
			if found && !i.Open() {
				of.resolved = append(of.resolved, i)
			}
			if found && of.policy == nil {
				of.policy = i.Ask.Policy
			}
			of.waits = of.waits && found && i.Open()
		}
		d.decided[index] = of
	}
	return nil
}

// wait parks the run on what a turn asks.
func (d *driver) wait(now *intent, failure error) *agentbus.Halt {
	h := &agentbus.Halt{Kind: agentbus.HaltWaiting, Wait: &agentbus.Wait{}}
	d.ask(h, now, failure)
	return h
}

// waitsFor adds what a stored turn waits for to a halt.
func (d *driver) waitsFor(h *agentbus.Halt, t *agentbus.Turn) {
	if h.Participant == "" {
		h.Participant, h.Reason = string(t.Speaker), gist(t.Error.Ask)
		d.asked = t.Error
	}
	h.Wait.Interrupts = append(h.Wait.Interrupts, t.Error.Ask.Interrupts...)
}

// gist is what an Ask comes to in a line.
func gist(a *agentbus.Ask) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(cmp.Or(a.Title, string(a.Kind)), "\uFFFD")), " ")
	if len(s) > maxTitle {
		s = strings.ToValidUTF8(s[:maxTitle], "") + "…"
	}
	return s
}

// ask lets a turn wait, with the halt h. What nobody below has parked on is
// raised here.
func (d *driver) ask(h *agentbus.Halt, now *intent, failure error) {
	e := *d.recordable(failure)
	ask, t := *e.Ask, &now.turn
	e.Ask, e.Err = &ask, nil
	ask.Prompt = d.options.text(storableText(ask.Prompt))
	ask.Title = d.options.text(gist(&ask))
	t.State, t.Error, t.Reply = agentbus.TurnWaiting, &e, agentbus.Reply{}
	if len(ask.Interrupts) == 0 {
		t.Interrupt = d.interrupt(t, ask)
		ask.Interrupts = []agentbus.InterruptID{t.Interrupt.ID}
	}
	ask.Resume = nil // it stays with the interrupt
	d.waitsFor(h, t)
	h.Wait.Asked = append(h.Wait.Asked, *t)
	d.asking = append(d.asking, now)
}

// interrupt returns what a turn raises.
func (d *driver) interrupt(t *agentbus.Turn, ask agentbus.Ask) *agentbus.Interrupt {
	raised := time.Now().UTC()
	expires := raised.Add(cmp.Or(max(0, ask.Timeout), d.options.AskTimeout))
	if !d.until.IsZero() && d.until.Before(expires) {
		expires = d.until // nobody would go on with it later
	}
	root, path := d.place()
	return &agentbus.Interrupt{
		ID: agentbus.InterruptOf(d.execution.ID, t.ID, t.Attempts), Run: t.Run, Execution: d.execution.ID, Root: root, Turn: t.ID,
		Payer: t.Payer, Path: append(path, t.Speaker), Ask: ask, Raised: raised, Expires: expires,
	}
}

// place returns the top-level execution around this one, and the speakers that
// lead to it from there.
func (d *driver) place() (agentbus.ExecutionID, []agentbus.Speaker) {
	if !d.enclosing.serves(&d.options.Lineage) {
		return d.execution.ID, nil
	}
	return d.enclosing.root, slices.Clip(d.enclosing.path)
}

// unkept returns why what a backend asks is not kept, or nil.
func unkept(failure error) error {
	a := agentbus.AsError(failure).Ask
	if _, err := json.Marshal(a); err != nil {
		return &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: "what it asks for is no JSON",
			Explain: &agentbus.Explain{Rule: "R22", Next: "mend the backend; what it asks for goes to people as JSON"},
		}
	}
	size := len(a.Title) + len(a.Prompt) + len(a.Policy) + len(a.Resume)
	for _, c := range a.Choices {
		size += len(c)
	}
	for name, v := range a.X402 {
		size += len(name) + len(v)
	}
	if size <= maxAsk {
		return nil
	}
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "what it asks for is larger than what is kept",
		Explain: &agentbus.Explain{Rule: "R22", Observed: size, Limit: maxAsk, Next: "ask for less at once"},
	}
}

// tooMany fails the turns that cannot wait, because too many do already, and goes on
// as behind any other failure.
func (d *driver) tooMany(ctx context.Context, full error) (*intent, *agentbus.Halt, error) {
	now, f := d.asking[0], d.parked
	d.asking, d.asked, d.parked = nil, nil, nil
	if f == nil {
		now.turn.Interrupt = nil
		return d.fail(ctx, now, full)
	}
	f.last = nil // it is finished
	for _, b := range f.branches {
		if b.asked == nil || b.turn.Interrupt == nil { // what somebody below asks has its room
			continue
		}
		if f.last != nil {
			if err := d.finish(ctx, f.last, nil); err != nil {
				return nil, nil, err
			}
		}
		b.turn.State, b.turn.Error, b.turn.Interrupt = agentbus.TurnFailed, d.recordable(full), nil
		b.asked, b.stands, f.last = nil, true, b
	}
	switch waiting := f.waiting(); {
	case f.last == nil:
		return nil, nil, full
	case len(waiting) > 0:
		return d.park(ctx, f, waiting)
	}
	return d.joined(ctx, f)
}

// waiting returns the branches that have asked, and those that wait since before.
func (f *fan) waiting() (waiting []*branch) {
	for _, b := range f.branches {
		if b.asked != nil || b.decided.waits && !b.stands {
			waiting = append(waiting, b)
		}
	}
	return waiting
}

// park waits for what branches ask (R21): the others are kept.
func (d *driver) park(ctx context.Context, f *fan, waiting []*branch) (*intent, *agentbus.Halt, error) {
	d.children, d.parked = f.children(), f
	if f.last != nil {
		if err := d.finish(ctx, f.last, nil); err != nil {
			return nil, nil, err
		}
	}
	h := &agentbus.Halt{Kind: agentbus.HaltWaiting, Wait: &agentbus.Wait{}}
	for _, b := range waiting {
		if b.asked != nil {
			b.hold = b.at + 1
			d.ask(h, b.intent, b.asked)
			continue
		}
		stored := d.carried[b.turn.Index]
		d.waitsFor(h, &stored)
	}
	return nil, h, nil
}

// withdraw cancels the branches that wait, since the join was met without them:
// behind the last that was done, so that nobody is cancelled who is still needed
// after a crash.
func (d *driver) withdraw(ctx context.Context, f *fan, waiting []*branch) error {
	if f.last != nil {
		if err := d.finish(ctx, f.last, nil); err != nil {
			return err
		}
	}
	f.last = waiting[len(waiting)-1] // it is finished with the turn after the fan
	for _, b := range waiting {
		t := &b.turn
		if b.asked == nil {
			if _, err := d.beginTurns(ctx, nil, *t); err != nil {
				return err
			}
		}
		t.State, t.Reply, t.Ended, t.Withdraw = agentbus.TurnCancelled, agentbus.Reply{}, time.Now().UTC(), d.unneeded(b)
		b.stands, b.asked = true, nil
		if b == f.last {
			break
		}
		if err := d.finish(ctx, b, nil); err != nil {
			return err
		}
	}
	return nil
}

// unneeded returns the interrupts that have been raised for a branch.
func (d *driver) unneeded(b *branch) []agentbus.InterruptID {
	if b.asked != nil {
		return agentbus.AsError(b.asked).Ask.Interrupts
	}
	if stored, carried := d.carried[b.turn.Index]; carried && askOf(&stored) != nil {
		return stored.Error.Ask.Interrupts
	}
	return nil
}
