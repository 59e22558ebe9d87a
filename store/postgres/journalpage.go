package postgres

import (
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus"
)

// A desk is where the journal of one execution is written, on a page.
type desk struct {
	agentbus.Execution

	number  int64
	next    int64 // position of the next event
	arrival int64 // of the next event that is held
	held    []heldEvent
	turns   map[int]*turn
	changed bool // owner, epoch, expires, state, halt or ended
	events  []agentbus.Event
	release bool // held_events are to be removed
	unseal  bool
}

// A turn is a row of the journal on a page.
type turn struct {
	agentbus.Turn

	odd     bool
	changed bool
}

// A heldEvent waits for its position.
type heldEvent struct {
	agentbus.Event

	arrival int64
	fresh   bool // not stored yet
}

// A journalPage is a part of the journal under the locks of its executions.
type journalPage struct {
	wantsTurns      map[agentbus.ExecutionID]map[int]bool
	wantsInterrupts map[agentbus.InterruptID]bool // whether they were resolved
	raising         bool                          // interrupts may be raised

	desks   map[agentbus.ExecutionID]*desk
	numbers map[int64]*desk
	stopped map[agentbus.RunID]bool
	now     time.Time // by the server's clock
	undo    []func()  // of the task that runs

	resolved  map[agentbus.InterruptID]bool
	waiting   int64 // interrupts; known where some may be raised
	raises    []raise
	withdrawn []withdrawal
	answered  []agentbus.Turn
}

func newJournalPage() *journalPage {
	return &journalPage{
		wantsTurns: map[agentbus.ExecutionID]map[int]bool{}, desks: map[agentbus.ExecutionID]*desk{}, numbers: map[int64]*desk{},
		stopped: map[agentbus.RunID]bool{}, wantsInterrupts: map[agentbus.InterruptID]bool{}, resolved: map[agentbus.InterruptID]bool{},
	}
}

// want asks for an execution and some of its turns.
func (p *journalPage) want(id agentbus.ExecutionID, turns ...*agentbus.Turn) {
	if p.wantsTurns[id] == nil {
		p.wantsTurns[id] = map[int]bool{}
	}
	for _, t := range turns {
		p.wantsTurns[id][t.Index] = true
		p.wantsTurns[id][t.ID.Index(t.Run)] = true // where its id would stand
	}
}

// load locks the executions in the order of their ids, then reads what is
// written to.
func (p *journalPage) load(c *conn) error {
	if len(p.wantsTurns) == 0 {
		return nil
	}
	err := c.each(func(r *row) {
		d := &desk{Execution: readExecution(r), number: r.int64(), turns: map[int]*turn{}}
		p.desks[d.ID], p.numbers[d.number] = d, d
	}, "SELECT "+executionColumns+", number FROM executions WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE", texts(p.wantsTurns))
	if err != nil {
		return err
	}
	var numbers, of, indexes []int64
	runs := map[agentbus.RunID]bool{}
	for number, d := range p.numbers {
		numbers = append(numbers, number)
		runs[d.Run] = true
		for i := range p.wantsTurns[d.ID] {
			of, indexes = append(of, number), append(indexes, int64(i))
		}
	}
	return p.read(c, numbers, of, indexes, runs)
}

// read reads the turns and events at the desks, in one round trip.
func (p *journalPage) read(c *conn, numbers, of, indexes []int64, runs map[agentbus.RunID]bool) error {
	var l load
	l.ask(func(r *row) { p.now = r.time() }, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
	if len(numbers) > 0 {
		l.ask(func(r *row) { p.numbers[r.int64()].next = r.int64() },
			"SELECT n, coalesce((SELECT max(position) + 1 FROM events WHERE number = n), 0) FROM unnest($1::int8[]) n", numbers)
		l.ask(p.readHeld, "SELECT number, hold, arrival, at, type, run, turn, cause, data, node, back FROM held_events WHERE number = ANY($1) ORDER BY number, arrival", numbers)
		l.ask(p.readTurn, "SELECT t.number, t.odd, "+turnColumns+" FROM turns t WHERE t.number = ANY($1) AND t.odd", numbers)
		l.ask(func(r *row) { p.stopped[agentbus.RunID(r.text())] = true }, "SELECT run FROM stopped_runs WHERE run = ANY($1)", texts(runs))
	}
	if len(indexes) > 0 {
		l.ask(p.readTurn, "SELECT t.number, t.odd, "+turnColumns+" FROM turns t JOIN unnest($1::int8[], $2::int8[]) w (number, idx) ON t.number = w.number AND t.idx = w.idx", of, indexes)
	}
	if len(p.wantsInterrupts) > 0 {
		l.ask(func(r *row) { p.resolved[agentbus.InterruptID(r.text())] = true },
			"SELECT id FROM interrupts WHERE id = ANY($1) AND decision <> ''", texts(p.wantsInterrupts))
	}
	if p.raising {
		l.ask(func(r *row) { p.waiting = r.int64() }, "SELECT count(*) FROM interrupts WHERE decision = ''")
	}
	return l.run(c)
}

func (p *journalPage) readTurn(r *row) {
	d := p.numbers[r.int64()]
	t := &turn{odd: r.bool()}
	t.Turn = readTurn(r, d.ID)
	d.turns[t.Index] = t
}

func (p *journalPage) readHeld(r *row) {
	d := p.numbers[r.int64()]
	h := heldEvent{Event: agentbus.Event{Hold: r.int()}, arrival: r.int64()}
	h.At, h.Type, h.Run = r.time(), r.text(), agentbus.RunID(r.text())
	h.Turn, h.Cause, h.Data = agentbus.TurnID(r.text()), agentbus.EventID(r.text()), r.blob()
	h.Node, h.CauseBack = r.text(), r.int()
	d.held, d.arrival = append(d.held, h), h.arrival+1
}

// all runs f and takes back what it did to the page when it fails.
func (p *journalPage) all(f func() error) error {
	p.undo = p.undo[:0]
	err := f()
	if err != nil {
		for _, undo := range slices.Backward(p.undo) {
			undo()
		}
	}
	return err
}

// keep takes note of d as it is, to be taken back.
func (p *journalPage) keep(d *desk) {
	before := *d
	before.held, before.events = slices.Clone(d.held), slices.Clone(d.events)
	p.undo = append(p.undo, func() { *d = before })
}

// change returns the turn at an index to be changed; nil when there is none.
func (p *journalPage) change(d *desk, index int) *turn {
	t := d.turns[index]
	if t != nil {
		before := *t
		p.undo = append(p.undo, func() { *t = before })
	}
	return t
}

// add puts a new turn at a desk.
func (p *journalPage) add(d *desk, t agentbus.Turn, odd bool) {
	d.turns[t.Index] = &turn{Turn: t, odd: odd, changed: true}
	p.undo = append(p.undo, func() { delete(d.turns, t.Index) })
}

const (
	turnSheetColumns = `number int8, idx int8, turn text, odd bool, payer text, agent text, run text, path text, parent text, speaker text, digest bytea,
		epoch int8, state text, cost int8, attempts int8, error text, began int8, ended int8, reply text`
	eventSheetColumns = "number int8, position int8, at int8, type text, run text, turn text, cause text, data bytea, node text"
	heldSheetColumns  = "number int8, hold int8, arrival int8, at int8, type text, run text, turn text, cause text, data bytea, node text, back int8"
)

// What the journal writes to.
var (
	turnSheet  = newSheet("turns", turnSheetColumns, replacing("number, idx", turnSheetColumns))
	eventSheet = newSheet("events", eventSheetColumns, "")
	heldSheet  = newSheet("held_events", heldSheetColumns, "")
)

// write writes what was changed, a statement a table, in one round trip.
func (p *journalPage) write(c *conn) error {
	turns, events, held := turnSheet.rows(), eventSheet.rows(), heldSheet.rows()
	var b pgx.Batch
	var released []int64
	for _, number := range slices.Sorted(maps.Keys(p.numbers)) {
		d := p.numbers[number]
		for _, i := range slices.Sorted(maps.Keys(d.turns)) {
			if t := d.turns[i]; t.changed {
				values, err := turnValues(number, t)
				if err != nil {
					return &rowError{err}
				}
				turns.add(values...)
			}
		}
		for i := range d.events {
			e := &d.events[i]
			events.add(number, int64(e.Position), micros(e.At), e.Type, string(e.Run), string(e.Turn), string(e.Cause), blob(e.Data), e.Node)
		}
		if d.release {
			released = append(released, number)
		}
		for i := range d.held {
			if e := &d.held[i]; e.fresh {
				held.add(number, int64(e.Hold), e.arrival, micros(e.At), e.Type, string(e.Run), string(e.Turn), string(e.Cause), blob(e.Data), e.Node, int64(e.CauseBack))
			}
		}
		if d.changed {
			if err := queueExecution(&b, d); err != nil {
				return &rowError{err}
			}
		}
	}
	if released != nil {
		b.Queue("DELETE FROM held_events WHERE number = ANY($1)", released)
	}
	for _, r := range []*rows{turns, events, held} {
		r.queue(&b)
	}
	p.queueInterrupts(&b)
	return c.send(&b)
}

// queueInterrupts adds those that are raised and withdrawn.
func (p *journalPage) queueInterrupts(b *pgx.Batch) {
	raised := interruptSheet.rows()
	for i := range p.raises {
		raised.add(p.raises[i].values()...)
	}
	raised.queue(b)
	for _, w := range p.withdrawn {
		b.Queue("UPDATE interrupts SET decision = $2, decided = $3, policy = NULL, resume = NULL WHERE id = $1 AND decision = ''",
			storable(string(w.id)), string(agentbus.DecisionWithdrawn), micros(w.at))
	}
	for i := range p.answered {
		t := &p.answered[i]
		b.Queue(`UPDATE interrupts SET policy = NULL, resume = NULL, resolution = NULL
			WHERE run = $1 AND execution = $2 AND turn = $3 AND decision = 'granted' AND coalesce(policy, resume, resolution) IS NOT NULL`,
			storable(string(t.Run)), storable(string(t.Execution)), storable(string(t.ID)))
	}
}

// queueExecution adds the statements that bring the row of an execution up to
// date.
func queueExecution(b *pgx.Batch, d *desk) error {
	var halt any
	if d.Halt != nil {
		text, err := jsonText(d.Halt)
		if err != nil {
			return err
		}
		halt = text
	}
	b.Queue("UPDATE executions SET state = $2, halt = $3, ended = $4, owner = $5, epoch = $6, expires = $7 WHERE number = $1",
		d.number, string(d.State), halt, micros(d.Ended), storable(d.Lease.Owner), signed(d.Lease.Epoch), micros(d.Lease.Expires))
	if d.unseal {
		b.Queue("DELETE FROM sealed_credentials WHERE execution = $1", storable(string(d.ID)))
	}
	return nil
}

// turnValues returns a row of turnSheet.
func turnValues(number int64, t *turn) ([]any, error) {
	var reply, failure any
	var err error
	if t.State != agentbus.TurnPending {
		if reply, err = jsonText(t.Reply); err != nil {
			return nil, err
		}
	}
	if t.Error != nil {
		if failure, err = jsonText(t.Error); err != nil {
			return nil, err
		}
	}
	return []any{
		number, int64(t.Index), string(t.ID), t.odd, string(t.Payer), t.Agent, string(t.Run), t.Path, string(t.Parent), string(t.Speaker), t.Digest[:],
		signed(t.Epoch), string(t.State), int64(t.Cost), int64(t.Attempts), failure, micros(t.Began), micros(t.Ended), reply,
	}, nil
}

// written rings for what followers wait for.
func (p *journalPage) written(s *Store) {
	var rooms []room
	for id, d := range p.desks {
		if len(d.events) > 0 || d.changed {
			rooms = append(rooms, roomOf(id))
		}
	}
	s.bells.ring(rooms...)
}
