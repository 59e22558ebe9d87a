package sqlite

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

// errLeaseLost answers a driver whose lease has moved on (R17).
var errLeaseLost = refusal(agentbus.CodeLeaseLost, "another driver holds this execution; stop, it goes on there")

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
	begun, err := write(ctx, s, "begin turns", func(c *conn) ([]agentbus.Turn, error) { return begin(c, turns, events) })
	s.rang(turns[0].Execution, events, err)
	return begun, err
}

// maxIndex is the highest index of a turn: 28 bits, see the first migration.
const maxIndex = 1<<28 - 1

// A desk is where the journal of one execution is written.
type desk struct {
	base  int64 // the id that a turn of index 0, or an event of position 0, has
	event int64 // the id of the next event
	odd   bool  // there are turns whose id does not name their index
	held  bool  // there are events that wait for their position
}

// takeDesk finds the execution id and checks that its lease still has epoch
// (R17).
func takeDesk(c *conn, id agentbus.ExecutionID, epoch uint64) (desk, error) {
	r, holds, err := c.first(`SELECT number << 28,
			coalesce((SELECT b.id + b.n FROM event_batches b WHERE b.id BETWEEN number << 28 AND (number << 28) + 0xfffffff ORDER BY b.id DESC LIMIT 1), number << 28),
			EXISTS (SELECT 1 FROM turns WHERE odd = 1 AND id >> 28 = number),
			EXISTS (SELECT 1 FROM held_batches WHERE number = executions.number)
		FROM executions WHERE id = ?1 AND epoch = ?2`, string(id), signed(epoch))
	if err == nil && !holds {
		err = errLeaseLost
	}
	if err != nil {
		return desk{}, err
	}
	return desk{base: r.int64(), event: r.int64(), odd: r.bool(), held: r.bool()}, nil
}

func begin(c *conn, turns []agentbus.Turn, events []agentbus.Event) ([]agentbus.Turn, error) {
	first := &turns[0]
	d, err := takeDesk(c, first.Execution, first.Epoch)
	if err != nil {
		return nil, err
	}
	begun := make([]agentbus.Turn, len(turns))
	for i := range turns {
		if turns[i].Execution != first.Execution || turns[i].Epoch != first.Epoch {
			return nil, errLeaseLost
		}
		if begun[i], err = d.begin(c, turns[i]); err != nil {
			return nil, err
		}
	}
	return begun, d.appendEvents(c, events)
}

func (d *desk) begin(c *conn, t agentbus.Turn) (agentbus.Turn, error) {
	if t.Index < 0 || t.Index > maxIndex {
		return agentbus.Turn{}, refusal(agentbus.CodeInvalidRequest, "the index of a turn is out of range; turns count from 0 to 268435455")
	}
	t.State, t.Reply, t.Error = agentbus.TurnPending, agentbus.Reply{}, nil
	t.Began, t.Ended = stored(t.Began), stored(t.Ended)
	id := d.base + int64(t.Index)
	odd := t.ID.Index(t.Run) != t.Index
	if odd || d.odd {
		_, taken, err := c.first("SELECT 1 FROM turns WHERE id BETWEEN ?1 AND ?1 + 0xfffffff AND turn = ?2 AND id <> ?3", d.base, string(t.ID), id)
		if err != nil {
			return agentbus.Turn{}, err
		}
		if taken {
			return agentbus.Turn{}, errTurnMismatch
		}
	}
	changed, err := c.exec(`INSERT INTO turns (id, turn, odd, payer, agent, run, path, parent, speaker, digest, epoch, state, cost, attempts, began)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'pending', ?12, ?13, ?14) ON CONFLICT (id) DO NOTHING`,
		id, string(t.ID), flag(odd), string(t.Payer), t.Agent, string(t.Run), t.Path, string(t.Parent),
		string(t.Speaker), t.Digest[:], signed(t.Epoch), int64(t.Cost), int64(t.Attempts), micros(t.Began))
	if err != nil {
		return agentbus.Turn{}, err
	}
	if changed == 1 {
		return t, nil
	}
	return beginKnown(c, id, t)
}

// errTurnMismatch answers a turn that the journal knows as another one (R15).
var errTurnMismatch = refusal(agentbus.CodeTurnMismatch,
	"the journal knows this turn with another request; resume with the definition and seed of the first start")

// beginKnown decides on a turn whose id in the table is taken.
func beginKnown(c *conn, id int64, t agentbus.Turn) (agentbus.Turn, error) {
	r, found, err := c.first("SELECT "+turnColumns+" FROM turns WHERE id = ?1 AND turn = ?2 AND digest = ?3", id, string(t.ID), t.Digest[:])
	if err == nil && !found {
		err = errTurnMismatch
	}
	if err != nil {
		return agentbus.Turn{}, err
	}
	known := readTurn(r, t.Execution)
	if r.err != nil || known.State == agentbus.TurnDone {
		return known, r.err
	}
	known.State, known.Epoch = agentbus.TurnPending, t.Epoch
	known.Reply, known.Ended = agentbus.Reply{}, time.Time{}
	if known.Error != nil && (known.Error.Ask == nil || len(known.Error.Ask.Interrupts) == 0) {
		known.Error = nil
	}
	_, err = c.exec("UPDATE turns SET state = 'pending', epoch = ?2, reply = NULL, ended = NULL, error = iif(?3, error, NULL) WHERE id = ?1",
		id, signed(t.Epoch), flag(known.Error != nil))
	return known, err
}

// Finish stores the result of done, whose State is done or failed, the intent
// of next, which may be nil, and events, all in one transaction (R14). Once it
// returned, none of them is ever lost or done again (I2). The interrupts in
// done.Withdraw are withdrawn with it. CodeLeaseLost: done
// is not pending under done.Epoch, or the lease has moved on (R17).
// CodeTurnMismatch: next is known with another request. On an error nothing is
// stored.
func (s *Store) Finish(ctx context.Context, done agentbus.Turn, next *agentbus.Turn, events ...agentbus.Event) error {
	f, err := newFinish(done)
	if err != nil {
		return unavailable("encode a turn", err)
	}
	if next != nil {
		n := *next
		f.next = &n
	}
	f.events = append(f.events, events...)
	_, err = write(ctx, s, "finish a turn", f.run)
	s.rang(done.Execution, events, err)
	return err
}

// A finish is what Finish stores, encoded outside the transaction.
type finish struct {
	done         agentbus.Turn
	reply, error any
	next         *agentbus.Turn
	events       []agentbus.Event
}

func newFinish(done agentbus.Turn) (f *finish, err error) {
	f = &finish{done: done}
	if f.reply, err = jsonText(done.Reply); err != nil {
		return nil, err
	}
	if done.Error != nil {
		f.error, err = jsonText(done.Error)
	}
	return f, err
}

func (f *finish) run(c *conn) (struct{}, error) {
	d, err := takeDesk(c, f.done.Execution, f.done.Epoch)
	if err == nil {
		err = f.write(c, &d)
	}
	if err == nil {
		err = d.appendEvents(c, f.events)
	}
	return struct{}{}, err
}

// write stores the result and the next intent.
func (f *finish) write(c *conn, d *desk) error {
	t := &f.done
	changed, err := c.exec(`UPDATE turns SET state = ?2, reply = ?3, cost = ?4, attempts = ?5, error = ?6, ended = ?7
		WHERE id = ?1 AND turn = ?8 AND state = 'pending' AND epoch = ?9`,
		d.base+int64(t.Index), string(t.State), f.reply, int64(t.Cost), int64(t.Attempts), f.error, micros(t.Ended),
		string(t.ID), signed(t.Epoch))
	if err == nil && changed == 0 {
		err = errLeaseLost
	}
	if err == nil {
		err = withdraw(c, t.Withdraw, t.Ended)
	}
	if err == nil {
		err = answered(c, t)
	}
	if err != nil || f.next == nil {
		return err
	}
	if f.next.Execution != t.Execution || f.next.Epoch != t.Epoch {
		return errLeaseLost
	}
	_, err = d.begin(c, *f.next)
	return err
}

// turnColumns are the columns readTurn reads, in its order; headColumns are those
// without the reply.
const (
	headColumns = "payer, agent, run, path, parent, turn, id & 0xfffffff, speaker, digest, epoch, state, cost, attempts, error, began, ended"
	turnColumns = headColumns + ", reply"
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

// A page of turns or events ends at either limit, so that a reader holds
// neither the file nor much memory while its caller works.
const (
	pageRows  = 256
	pageBytes = 1 << 20
)

// pastPlace selects the ids of turns or events of execution ?1 past index or
// position ?2.
const pastPlace = `BETWEEN (SELECT (number << 28) + ?2 + 1 FROM executions WHERE id = ?1)
	AND (SELECT (number << 28) + 0xfffffff FROM executions WHERE id = ?1)`

// Turns yields the turns of an execution by index. It sees every turn that was
// acknowledged before it started. It ends with its first error.
func (s *Store) Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error] {
	return pages(func(after int64) (page []agentbus.Turn, more bool, err error) {
		size := 0
		err = s.each(ctx, "read the turns of an execution", func(r *row) bool {
			page = append(page, readTurn(r, id))
			size += len(page[len(page)-1].Reply.Text)
			return size < pageBytes
		}, "SELECT "+turnColumns+" FROM turns WHERE id "+pastPlace+onePage, string(id), after)
		return page, size >= pageBytes || len(page) == pageRows, err
	}, func(t agentbus.Turn) int64 { return int64(t.Index) }, -1)
}

// onePage limits a page to pageRows. The number is in the text, since SQLite plans
// a statement whose limit is a parameter anew at each run.
var onePage = " ORDER BY id LIMIT " + strconv.Itoa(pageRows)

// pages yields what read returns page by page, until there are no more. Each read
// is given the place of the last value yielded.
func pages[T any](read func(after int64) (page []T, more bool, err error), place func(T) int64, after int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		after := after
		for {
			page, more, err := read(after)
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
			if !more {
				return
			}
		}
	}
}
