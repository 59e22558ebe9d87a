package sqlite

import (
	"context"
	"iter"

	"github.com/agentbus/agentbus"
)

// errLeaseLost answers a driver whose lease has moved on (R17).
var errLeaseLost = refusal(agentbus.CodeLeaseLost, "another driver holds this execution; stop, it goes on there")

// Begin records that t is about to be performed (R14). If it fails, perform
// nothing. It has four outcomes:
//
//   - t is new, or known with the same digest and not done: it is stored as
//     pending under t.Epoch and returned with the Attempts, Cost and Began it
//     had; perform it.
//   - t is done: it is returned as stored; perform nothing.
//   - Its index or turn id is taken by another request: CodeTurnMismatch.
//   - t.Epoch is not that of the execution's lease: CodeLeaseLost (R17).
func (s *Store) Begin(ctx context.Context, t agentbus.Turn) (agentbus.Turn, error) {
	return write(ctx, s, "begin a turn", func(c *conn) (agentbus.Turn, error) { return begin(c, t) })
}

func begin(c *conn, t agentbus.Turn) (agentbus.Turn, error) {
	t.State, t.Reply, t.Error = agentbus.TurnPending, agentbus.Reply{}, nil
	t.Began, t.Ended = stored(t.Began), stored(t.Ended)
	changed, err := c.exec(`INSERT INTO turns (execution, idx, turn, payer, agent, run, path, parent, speaker, digest, epoch, state, cost,
			attempts, began)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'pending', ?12, ?13, ?14
		WHERE EXISTS (SELECT 1 FROM executions WHERE id = ?1 AND epoch = ?11)
		ON CONFLICT DO NOTHING`,
		string(t.Execution), int64(t.Index), string(t.ID), string(t.Payer), t.Agent, string(t.Run), t.Path, string(t.Parent),
		string(t.Speaker), t.Digest[:], signed(t.Epoch), int64(t.Cost), int64(t.Attempts), micros(t.Began))
	if err != nil {
		return agentbus.Turn{}, err
	}
	if changed == 1 {
		return t, nil
	}
	return beginKnown(c, t)
}

// beginKnown decides on a turn that was not new, or whose lease was lost.
func beginKnown(c *conn, t agentbus.Turn) (agentbus.Turn, error) {
	_, holds, err := c.first("SELECT 1 FROM executions WHERE id = ?1 AND epoch = ?2", string(t.Execution), signed(t.Epoch))
	if err != nil {
		return agentbus.Turn{}, err
	}
	if !holds {
		return agentbus.Turn{}, errLeaseLost
	}
	r, found, err := c.first("SELECT "+turnColumns+" FROM turns WHERE execution = ?1 AND idx = ?2 AND turn = ?3 AND digest = ?4",
		string(t.Execution), int64(t.Index), string(t.ID), t.Digest[:])
	if err != nil {
		return agentbus.Turn{}, err
	}
	if !found {
		return agentbus.Turn{}, refusal(agentbus.CodeTurnMismatch,
			"the journal knows this turn with another request; resume with the definition and seed of the first start")
	}
	known := readTurn(r)
	if r.err != nil || known.State == agentbus.TurnDone {
		return known, r.err
	}
	known.State, known.Epoch = agentbus.TurnPending, t.Epoch
	known.Reply, known.Error, known.Ended = agentbus.Reply{}, nil, stored(t.Ended)
	_, err = c.exec("UPDATE turns SET state = 'pending', epoch = ?3, reply = NULL, error = NULL, ended = NULL WHERE execution = ?1 AND idx = ?2",
		string(t.Execution), int64(t.Index), signed(t.Epoch))
	return known, err
}

// Finish stores the result of done, whose State is done or failed, the intent
// of next, which may be nil, and events, all in one transaction (R14). Once it
// returned, none of them is ever lost or done again (I2). CodeLeaseLost: done
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
	none := struct{}{}
	d := &f.done
	changed, err := c.exec(`UPDATE turns SET state = ?4, reply = ?5, cost = ?6, attempts = ?7, error = ?8, ended = ?9
		WHERE execution = ?1 AND idx = ?2 AND turn = ?10 AND state = 'pending' AND epoch = ?3
			AND EXISTS (SELECT 1 FROM executions WHERE id = ?1 AND epoch = ?3)`,
		string(d.Execution), int64(d.Index), signed(d.Epoch), string(d.State), f.reply, int64(d.Cost), int64(d.Attempts), f.error,
		micros(d.Ended), string(d.ID))
	if err != nil {
		return none, err
	}
	if changed == 0 {
		return none, errLeaseLost
	}
	if f.next != nil {
		if _, err := begin(c, *f.next); err != nil {
			return none, err
		}
	}
	return none, appendEvents(c, d.Execution, f.events)
}

const turnColumns = `payer, agent, run, path, parent, turn, execution, idx, speaker, digest, epoch, state, cost, attempts, error, began, ended, reply`

func readTurn(r *row) agentbus.Turn {
	t := agentbus.Turn{TurnKey: readTurnKey(r)}
	t.Execution, t.Index, t.Speaker = agentbus.ExecutionID(r.text()), r.int(), agentbus.Speaker(r.text())
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

// Turns yields the turns of an execution by index. It sees every turn that was
// acknowledged before it started. It ends with its first error.
func (s *Store) Turns(ctx context.Context, id agentbus.ExecutionID) iter.Seq2[agentbus.Turn, error] {
	return pages(func(after int64) ([]agentbus.Turn, error) {
		var page []agentbus.Turn
		size := 0
		err := s.each(ctx, "read the turns of an execution", func(r *row) bool {
			page = append(page, readTurn(r))
			size += len(page[len(page)-1].Reply.Text)
			return size < pageBytes
		}, "SELECT "+turnColumns+" FROM turns WHERE execution = ?1 AND idx > ?2 ORDER BY idx LIMIT ?3", string(id), after, pageRows)
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
