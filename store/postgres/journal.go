package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
)

// errLeaseLost answers a driver whose lease has moved on (R17).
var errLeaseLost = refusal(agentbus.CodeLeaseLost, "another driver holds this execution; stop, it goes on there")

// errTurnMismatch answers a turn that the journal knows as another one (R15).
var errTurnMismatch = refusal(agentbus.CodeTurnMismatch,
	"the journal knows this turn with another request; resume with the definition and seed of the first start")

// maxIndex is the highest index of a turn.
const maxIndex = 1<<28 - 1

// Begin records that turns of one execution are about to be performed, and
// events, in one transaction (R14). If it fails, nothing is stored: perform
// nothing. It returns each turn, in order. It has four outcomes:
//
//   - A turn is new, or known with the same digest and not done: it is stored as
//     pending under its Epoch and returned with the Attempts, Cost and Began it
//     had, and, if it was waiting, the Error with what it asks; perform it.
//   - It is done: it is returned as stored; do not perform it.
//   - Its index or turn id is taken by another request: CodeTurnMismatch.
//   - Its Epoch is not that of the execution's lease: CodeLeaseLost (R17).
func (s *Store) Begin(ctx context.Context, turns []agentbus.Turn, events ...agentbus.Event) ([]agentbus.Turn, error) {
	if len(turns) == 0 {
		return nil, refusal(agentbus.CodeInvalidRequest, "no turn was given that could be begun")
	}
	turns, events = slices.Clone(turns), slices.Clone(events) // the committer may read them still when ctx has ended
	first := &turns[0]
	var begun []agentbus.Turn
	err := of(s.journal, string(first.Execution)).do(ctx, s, "begin turns", func(p *journalPage) {
		for i := range turns {
			p.want(first.Execution, &turns[i])
		}
	}, func(p *journalPage) error {
		return p.all(func() (err error) {
			begun, err = p.begin(first, turns, events)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return begun, nil
}

// take finds the desk of an execution whose lease has epoch (R17).
func (p *journalPage) take(id agentbus.ExecutionID, epoch uint64) (*desk, error) {
	d := p.desks[id]
	if d == nil || d.Lease.Epoch != epoch {
		return nil, errLeaseLost
	}
	p.keep(d)
	return d, nil
}

func (p *journalPage) begin(first *agentbus.Turn, turns []agentbus.Turn, events []agentbus.Event) ([]agentbus.Turn, error) {
	d, err := p.take(first.Execution, first.Epoch)
	if err != nil {
		return nil, err
	}
	begun := make([]agentbus.Turn, len(turns))
	for i := range turns {
		if turns[i].Execution != first.Execution || turns[i].Epoch != first.Epoch {
			return nil, errLeaseLost
		}
		if begun[i], err = p.intend(d, turns[i]); err != nil {
			return nil, err
		}
	}
	return begun, d.append(events)
}

// intend puts the intent of a turn at a desk.
func (p *journalPage) intend(d *desk, t agentbus.Turn) (agentbus.Turn, error) {
	if t.Index < 0 || t.Index > maxIndex {
		return agentbus.Turn{}, refusal(agentbus.CodeInvalidRequest, "the index of a turn is out of range; turns count from 0 to 268435455")
	}
	for i, other := range d.turns {
		if other.ID == t.ID && i != t.Index {
			return agentbus.Turn{}, errTurnMismatch
		}
	}
	known := p.change(d, t.Index)
	if known == nil {
		t.State, t.Reply, t.Error = agentbus.TurnPending, agentbus.Reply{}, nil
		t.Began, t.Ended = stored(t.Began), time.Time{}
		p.add(d, t, t.ID.Index(t.Run) != t.Index)
		return t, nil
	}
	switch {
	case known.ID != t.ID || known.Digest != t.Digest:
		return agentbus.Turn{}, errTurnMismatch
	case known.State == agentbus.TurnDone:
		return known.Turn, nil
	}
	known.State, known.Epoch, known.changed = agentbus.TurnPending, t.Epoch, true
	known.Reply, known.Ended = agentbus.Reply{}, time.Time{}
	if known.Error != nil && (known.Error.Ask == nil || len(known.Error.Ask.Interrupts) == 0) {
		known.Error = nil
	}
	return known.Turn, nil
}

// Finish stores the result of done, whose State is done or failed, the intent
// of next, which may be nil, and events, all in one transaction (R14). Once it
// returned, none of them is ever lost or done again (I2). The interrupts in
// done.Withdraw are withdrawn with it. CodeLeaseLost: done
// is not pending under done.Epoch, or the lease has moved on (R17).
// CodeTurnMismatch: next is known with another request. On an error nothing is
// stored.
func (s *Store) Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error {
	const what = "finish a turn"
	if _, err := turnValues(0, &turn{Turn: done}); err != nil {
		return unavailable(ctx, what, &rowError{err})
	}
	if next != nil {
		n := *next
		next = &n
	}
	events = slices.Clone(events)
	return of(s.journal, string(done.Execution)).do(ctx, s, what, func(p *journalPage) {
		p.want(done.Execution, &done)
		if next != nil {
			p.want(done.Execution, next)
		}
	}, func(p *journalPage) error {
		return p.all(func() error { return p.finish(&done, next, events) })
	})
}

func (p *journalPage) finish(done, next *agentbus.Turn, events []agentbus.Event) error {
	d, err := p.take(done.Execution, done.Epoch)
	if err != nil {
		return err
	}
	if err := p.end(d, done); err != nil {
		return err
	}
	if next != nil {
		if next.Execution != done.Execution || next.Epoch != done.Epoch {
			return errLeaseLost
		}
		if _, err := p.intend(d, *next); err != nil {
			return err
		}
	}
	return d.append(events)
}

// end puts the result of a turn at a desk.
func (p *journalPage) end(d *desk, done *agentbus.Turn) error {
	t := p.change(d, done.Index)
	if t == nil || t.ID != done.ID || t.State != agentbus.TurnPending || t.Epoch != done.Epoch {
		return errLeaseLost
	}
	t.State, t.Reply, t.Cost, t.Attempts, t.Error = done.State, done.Reply, done.Cost, done.Attempts, done.Error
	t.Ended, t.changed = stored(done.Ended), true
	p.withdraw(done.Withdraw, done.Ended)
	if done.Attempts > 1 { // it was called again: nobody needs what it asked any more
		p.answer(done)
	}
	return nil
}

// append stores events from the desk's next position on. One that is held
// waits; the next that is not puts those before itself, in the order of Hold.
// It takes no event whose data is no JSON.
func (d *desk) append(events []agentbus.Event) error {
	for _, e := range events {
		if len(e.Data) > 0 && !json.Valid(e.Data) {
			return &rowError{errors.New("the data of an event is no JSON")}
		}
		if e.Hold > 0 {
			d.held = append(d.held, heldEvent{Event: e, arrival: d.arrival, fresh: true})
			d.arrival++
			continue
		}
		slices.SortStableFunc(d.held, func(a, b heldEvent) int { return a.Hold - b.Hold })
		for _, h := range d.held {
			d.release = d.release || !h.fresh
			d.place(h.Event)
		}
		d.held = nil
		d.place(e)
	}
	return nil
}

// place gives an event its position.
func (d *desk) place(e agentbus.Event) {
	e.Position = agentbus.Position(d.next)
	if e.CauseBack > 0 {
		e.Cause = agentbus.EventIDOf(d.ID, e.Position-agentbus.Position(e.CauseBack))
	}
	d.next++
	d.events = append(d.events, e)
}

// turnColumns are the columns readTurn reads, in its order, of turns t;
// headColumns are those without the reply.
const (
	headColumns = `t.payer, t.agent, t.run, t.path, t.parent, t.turn, t.idx, t.speaker, t.digest, t.epoch, t.state, t.cost, t.attempts, t.error,
	t.began, t.ended`
	turnColumns = headColumns + ", t.reply"
)

func readTurn(r *row, id agentbus.ExecutionID) agentbus.Turn {
	t := agentbus.Turn{TurnKey: readTurnKey(r), Execution: id}
	t.Index, t.Speaker = r.int(), agentbus.Speaker(r.text())
	t.Digest, t.Epoch, t.State = r.digest(), r.epoch(), agentbus.TurnState(r.text())
	t.Cost, t.Attempts = r.micros(), r.int()
	r.json(&t.Error)
	t.Began, t.Ended = r.time(), r.time()
	r.json(&t.Reply)
	return t
}

// A page of turns or events that is read ends at either limit, so that a reader
// holds neither a connection nor much memory while its caller works.
const (
	pageRows  = 256
	pageBytes = 1 << 20
)

// Turns yields the turns of an execution by index. It sees every turn that was
// acknowledged before it started. It ends with its first error.
func (s *Store) Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error] {
	return pages(func(after int64) ([]agentbus.Turn, error) {
		var page []agentbus.Turn
		size := 0
		err := s.each(ctx, "read the turns of an execution", func(r *row) bool {
			page = append(page, readTurn(r, id))
			size += len(page[len(page)-1].Reply.Text)
			return size < pageBytes
		}, "SELECT "+turnColumns+` FROM turns t WHERE t.number = (SELECT number FROM executions WHERE id = $1) AND t.idx > $2
			ORDER BY t.idx LIMIT $3`, string(id), after, pageRows)
		return page, err
	}, func(t agentbus.Turn) int64 { return int64(t.Index) }, -1)
}

// pages yields what read returns page by page, until a page is empty. Each read
// is given the place of the last value yielded.
func pages[T any](read func(after int64) ([]T, error), place func(T) int64, after int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		after := after
		for {
			page, err := read(after)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, v := range page {
				if !yield(v, nil) {
					return
				}
				after = place(v)
			}
			if len(page) == 0 {
				return
			}
		}
	}
}
