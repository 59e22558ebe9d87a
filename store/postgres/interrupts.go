package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
)

// defaultMostInterrupts is how many interrupts may wait unless Config says
// otherwise.
const defaultMostInterrupts = 100_000

// A raise is an interrupt to be stored, encoded outside the transaction.
type raise struct {
	interrupt *agentbus.Interrupt
	path, ask any
}

func newRaise(i *agentbus.Interrupt) (r raise, err error) {
	r.interrupt = i
	if r.path, err = jsonText(i.Path); err == nil {
		r.ask, err = jsonText(i.Ask)
	}
	return r, err
}

const interruptSheetColumns = `id text, run text, execution text, root text, turn text, payer text, path text, ask text, policy bytea, resume bytea,
	raised int8, expires int8`

var interruptSheet = newSheet("interrupts", interruptSheetColumns, "ON CONFLICT (id) DO NOTHING")

// values returns a row of interruptSheet.
func (r *raise) values() []any {
	i := r.interrupt
	return []any{
		string(i.ID), string(i.Run), string(i.Execution), string(i.Root), string(i.Turn), string(i.Payer), r.path, r.ask,
		blob(i.Ask.Policy), blob(i.Ask.Resume), micros(i.Raised), micros(i.Expires),
	}
}

// raise puts an interrupt on the page, unless as many wait as may.
func (p *journalPage) raise(r raise, most int64) error {
	if p.waiting >= most {
		return &agentbus.Error{
			Code: agentbus.CodeOverloaded, Message: "too many interrupts wait already",
			Explain: &agentbus.Explain{Rule: "R22", Limit: most, Next: "resolve some (agentbus inbox), or let more wait: interrupts.most in the configuration"},
		}
	}
	n := len(p.raises)
	p.undo = append(p.undo, func() { p.raises, p.waiting = p.raises[:n], p.waiting-1 })
	p.raises, p.waiting = append(p.raises, r), p.waiting+1
	return nil
}

// withdraw ends interrupts that nobody needs any more.
func (p *journalPage) withdraw(ids []agentbus.InterruptID, at time.Time) {
	n := len(p.withdrawn)
	p.undo = append(p.undo, func() { p.withdrawn = p.withdrawn[:n] })
	for _, id := range ids {
		p.withdrawn = append(p.withdrawn, withdrawal{id, stored(at)})
	}
}

// answer erases the secrets of what a turn asked before it was finished.
func (p *journalPage) answer(t *agentbus.Turn) {
	n := len(p.answered)
	p.undo = append(p.undo, func() { p.answered = p.answered[:n] })
	p.answered = append(p.answered, *t)
}

// A withdrawal ends an interrupt that waits.
type withdrawal struct {
	id agentbus.InterruptID
	at time.Time
}

// A parking is what a halt that waits stores.
type parking struct {
	turns  []agentbus.Turn
	raises []raise
	waits  []agentbus.InterruptID
}

// newParking encodes the wait of a halt; nil is none.
func newParking(w *agentbus.Wait) (*parking, error) {
	p := &parking{}
	if w == nil {
		return p, nil
	}
	p.waits, p.turns = slices.Clone(w.Interrupts), slices.Clone(w.Asked)
	for i := range p.turns {
		if _, err := turnValues(0, &turn{Turn: p.turns[i]}); err != nil {
			return nil, err
		}
		if p.turns[i].Interrupt == nil {
			continue
		}
		r, err := newRaise(p.turns[i].Interrupt)
		if err != nil {
			return nil, err
		}
		p.raises = append(p.raises, r)
	}
	for i := range w.Raised {
		r, err := newRaise(&w.Raised[i])
		if err != nil {
			return nil, err
		}
		p.raises = append(p.raises, r)
	}
	return p, nil
}

// want asks for what the parking is about.
func (k *parking) want(p *journalPage, id agentbus.ExecutionID) {
	p.want(id)
	for i := range k.turns {
		p.want(id, &k.turns[i])
	}
	for _, id := range k.waits {
		p.wantsInterrupts[id] = true
	}
	p.raising = p.raising || len(k.raises) > 0
}

// park finishes the turns that asked and raises their interrupts, and reports
// whether something that the run would wait for was resolved already.
func (p *journalPage) park(d *desk, k *parking, most int64) (over bool, err error) {
	for _, r := range k.raises {
		if err := p.raise(r, most); err != nil {
			return false, err
		}
	}
	for i := range k.turns {
		if err := p.end(d, &k.turns[i]); err != nil {
			return false, err
		}
	}
	return slices.ContainsFunc(k.waits, func(id agentbus.InterruptID) bool { return p.resolved[id] }), nil
}

// decide ends an interrupt that waits, and reports whether it did.
func decide(c *conn, id agentbus.InterruptID, r *agentbus.Resolution) (bool, error) {
	n, err := c.exec(`UPDATE interrupts SET decision = $2, text = $3, resolution = CASE WHEN $7 THEN $4::bytea END, decided_by = $5, decided = $6,
			policy = CASE WHEN $7 THEN policy END, resume = CASE WHEN $7 THEN resume END
		WHERE id = $1 AND decision = ''`,
		string(id), string(r.Decision), r.Text, blob(r.Policy), r.By, micros(r.At), r.Decision == agentbus.DecisionGranted)
	return n > 0, err
}

// wake lets a run that waits go on with whoever claims it next (R19). A run that
// serves a call of somebody else goes on when that one calls again.
func wake(c *conn, root agentbus.ExecutionID) error {
	_, err := c.exec(`UPDATE executions SET state = 'running', owner = '', expires = NULL, ended = NULL
		WHERE id = $1 AND id = run AND state = 'paused' AND halt LIKE '{"kind":"waiting"%'
			AND NOT EXISTS (SELECT 1 FROM stopped_runs WHERE stopped_runs.run = executions.run)`, string(root))
	return err
}

// lockRoots locks the runs that interrupts may let go on, in the order of their
// ids: before the interrupts themselves, as a halt does.
func lockRoots(c *conn, ids []agentbus.InterruptID) error {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = storable(string(id))
	}
	return c.each(func(*row) {}, `SELECT 1 FROM executions WHERE id IN (SELECT root FROM interrupts WHERE id = ANY($1)) ORDER BY id FOR NO KEY UPDATE`, names)
}

const interruptColumns = `id, run, execution, root, turn, payer, path, ask, policy, resume, raised, expires, decision, text, resolution, decided_by, decided`

func readInterrupt(r *row) agentbus.Interrupt {
	i := agentbus.Interrupt{ID: agentbus.InterruptID(r.text()), Run: agentbus.RunID(r.text()), Execution: agentbus.ExecutionID(r.text())}
	i.Root, i.Turn, i.Payer = agentbus.ExecutionID(r.text()), agentbus.TurnID(r.text()), agentbus.Payer(r.text())
	r.json(&i.Path)
	r.json(&i.Ask)
	if policy := r.blob(); policy != nil { // else what may be shown of it is left
		i.Ask.Policy = policy
	}
	i.Ask.Resume, i.Raised, i.Expires = r.blob(), r.time(), r.time()
	d := agentbus.Resolution{Decision: agentbus.Decision(r.text()), Text: r.text(), Policy: r.blob(), By: r.text(), At: r.time()}
	if d.Decision != "" {
		i.Resolution = &d
	}
	return i
}

const interruptByID = "SELECT " + interruptColumns + " FROM interrupts WHERE id = $1"

// Interrupt returns an interrupt, and whether the store knows it. What is for its
// backend alone is with it until it is denied, or the turn that asked is finished:
// then it is erased.
func (s *Store) Interrupt(ctx context.Context, id agentbus.InterruptID) (agentbus.Interrupt, bool, error) {
	return only(ctx, s, "read an interrupt", readInterrupt, interruptByID, string(id))
}

// Interrupts returns interrupts in the order in which they were raised.
func (s *Store) Interrupts(ctx context.Context, q agentbus.InterruptQuery) ([]agentbus.Interrupt, error) {
	where, behind, order := " AND decision = ''", "> coalesce((SELECT number FROM interrupts WHERE id = $1), 0)", "number"
	switch {
	case q.Decided:
		where, behind, order = " AND decision <> ''", "< coalesce((SELECT number FROM interrupts WHERE id = $1), 9223372036854775807)", "number DESC"
	case q.All:
		where = ""
	}
	if q.Run != "" {
		where += " AND run = $3"
	} else {
		where += " AND $3 = ''"
	}
	return list(ctx, s, "list interrupts", readInterrupt, "SELECT "+interruptColumns+` FROM interrupts
		WHERE number `+behind+" AND ($2 = '' OR payer = $2)"+where+" ORDER BY "+order+" LIMIT $4",
		string(q.After), string(q.Payer), string(q.Run), q.Limit)
}

// Resolve decides an interrupt, once (I6), and lets its run go on with whoever
// claims it next. It returns the interrupt as it stands. CodeNotFound: there is
// none of that id. CodeRunConflict: it is decided already, or it expired before
// r.At, which decides it now.
func (s *Store) Resolve(ctx context.Context, id agentbus.InterruptID, r agentbus.Resolution) (agentbus.Interrupt, error) {
	won := false
	i, err := write(ctx, s, "resolve an interrupt", func(c *conn) (agentbus.Interrupt, error) {
		won = false
		if err := lockRoots(c, []agentbus.InterruptID{id}); err != nil {
			return agentbus.Interrupt{}, err
		}
		got, found, err := c.first(interruptByID+" FOR NO KEY UPDATE", string(id))
		if err != nil || !found {
			return agentbus.Interrupt{}, err
		}
		i := readInterrupt(got)
		if got.err != nil || !i.Open() {
			return i, got.err
		}
		if won = r.At.Before(i.Expires); !won {
			r = agentbus.Resolution{Decision: agentbus.DecisionExpired, At: i.Expires}
		}
		if _, err = decide(c, id, &r); err == nil {
			err = wake(c, i.Root)
		}
		if err == nil {
			got, _, err = c.first(interruptByID, string(id))
		}
		if err != nil {
			return i, err
		}
		i = readInterrupt(got)
		return i, got.err
	})
	if err == nil {
		s.bells.ring(roomOf(i.Root))
	}
	switch {
	case err != nil || won:
		return i, err
	case i.ID == "":
		return i, &agentbus.Error{
			Code: agentbus.CodeNotFound, Message: "there is no such interrupt",
			Explain: &agentbus.Explain{Rule: "R22", Next: "see agentbus inbox"},
		}
	}
	by := ""
	if i.Resolution.By != "" {
		by = " by " + i.Resolution.By
	}
	return i, &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: "this interrupt is decided already: it was " + string(i.Resolution.Decision) + by + " at " + i.Resolution.At.UTC().Format(time.RFC3339),
		Explain: &agentbus.Explain{Rule: "R22", Observed: string(i.Resolution.Decision), Next: "nothing: an interrupt is decided once"},
	}
}

// ExpireInterrupts decides those whose time is up at a time, at most limit of
// them, and lets their runs go on. It returns how many. It writes nothing when
// there are none.
func (s *Store) ExpireInterrupts(ctx context.Context, at time.Time, limit int) (n int, err error) {
	const what, late = "expire interrupts", "SELECT id, root, expires FROM interrupts WHERE decision = '' AND expires <= $1 ORDER BY expires LIMIT $2"
	type due struct {
		id      agentbus.InterruptID
		root    agentbus.ExecutionID
		expired time.Time
	}
	all, err := list(ctx, s, what, func(r *row) due {
		return due{agentbus.InterruptID(r.text()), agentbus.ExecutionID(r.text()), r.time()}
	}, late, at.UnixMicro(), limit)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return write(ctx, s, what, func(c *conn) (int, error) {
		n := 0
		ids := make([]agentbus.InterruptID, len(all))
		for i := range all {
			ids[i] = all[i].id
		}
		if err := lockRoots(c, ids); err != nil {
			return 0, err
		}
		for _, i := range all {
			done, err := decide(c, i.id, &agentbus.Resolution{Decision: agentbus.DecisionExpired, At: i.expired})
			if err != nil {
				return n, err
			}
			if !done {
				continue
			}
			n++
			if err := wake(c, i.root); err != nil {
				return n, err
			}
		}
		return n, nil
	})
}
