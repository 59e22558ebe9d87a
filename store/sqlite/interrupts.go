package sqlite

import (
	"context"
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

// write stores the interrupt, unless as many wait as may.
func (r *raise) write(c *conn, most int64) error {
	n, _, err := c.first("SELECT n FROM waiting_interrupts")
	if err != nil {
		return err
	}
	if n.int64() >= most {
		return &agentbus.Error{
			Code: agentbus.CodeOverloaded, Message: "too many interrupts wait already",
			Explain: &agentbus.Explain{Rule: "R22", Limit: most, Next: "resolve some (agentbus inbox), or let more wait: interrupts.most in the configuration"},
		}
	}
	i := r.interrupt
	_, err = c.exec(`INSERT INTO interrupts (id, run, execution, root, turn, payer, path, ask, policy, resume, raised, expires)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO NOTHING`,
		string(i.ID), string(i.Run), string(i.Execution), string(i.Root), string(i.Turn), string(i.Payer), r.path, r.ask,
		blob(i.Ask.Policy), blob(i.Ask.Resume), micros(i.Raised), micros(i.Expires))
	return err
}

// A parking is what a halt that waits stores.
type parking struct {
	turns  []*finish
	raises []raise
	most   int64
	waits  []agentbus.InterruptID
}

// parking encodes the wait of a halt; nil is none.
func (s *Store) parking(w *agentbus.Wait) (*parking, error) {
	p := &parking{most: s.mostInterrupts}
	if w == nil {
		return p, nil
	}
	p.waits = w.Interrupts
	for i := range w.Asked {
		t := &w.Asked[i]
		f, err := newFinish(*t)
		if err != nil {
			return nil, err
		}
		p.turns = append(p.turns, f)
		if t.Interrupt == nil {
			continue
		}
		r, err := newRaise(t.Interrupt)
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

// write finishes the turns that asked and raises their interrupts.
func (p *parking) write(c *conn, d *desk) error {
	for i := range p.raises {
		if err := p.raises[i].write(c, p.most); err != nil {
			return err
		}
	}
	for _, f := range p.turns {
		if err := f.write(c, d); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether something that the run would wait for was resolved
// already.
func (p *parking) over(c *conn) (bool, error) {
	for _, id := range p.waits {
		_, resolved, err := c.first("SELECT 1 FROM interrupts WHERE id = ?1 AND decision <> ''", string(id))
		if err != nil || resolved {
			return resolved, err
		}
	}
	return false, nil
}

// decide ends an interrupt that waits, and reports whether it did. What its
// backend needs to go on is kept for one that is called again, and erased
// otherwise; see answered.
func decide(c *conn, id agentbus.InterruptID, r *agentbus.Resolution) (bool, error) {
	granted := flag(r.Decision == agentbus.DecisionGranted)
	n, err := c.exec(`UPDATE interrupts SET decision = ?2, text = ?3, resolution = iif(?7, ?4, NULL), decided_by = ?5, decided = ?6,
			policy = iif(?7, policy, NULL), resume = iif(?7, resume, NULL)
		WHERE id = ?1 AND decision = ''`,
		string(id), string(r.Decision), r.Text, blob(r.Policy), r.By, micros(r.At), granted)
	return n > 0, err
}

// answered erases the secrets of what a turn asked before it was finished: nobody
// needs them any more.
func answered(c *conn, t *agentbus.Turn) error {
	if t.Attempts < 2 { // it was not called again
		return nil
	}
	_, err := c.exec(`UPDATE interrupts SET policy = NULL, resume = NULL, resolution = NULL
		WHERE run = ?1 AND execution = ?2 AND turn = ?3 AND decision = 'granted' AND coalesce(policy, resume, resolution) IS NOT NULL`,
		string(t.Run), string(t.Execution), string(t.ID))
	return err
}

// withdraw ends interrupts that nobody needs any more.
func withdraw(c *conn, ids []agentbus.InterruptID, at time.Time) error {
	for _, id := range ids {
		if _, err := decide(c, id, &agentbus.Resolution{Decision: agentbus.DecisionWithdrawn, At: at}); err != nil {
			return err
		}
	}
	return nil
}

// wake lets a run that waits go on with whoever claims it next (R19). A run that
// serves a call of somebody else goes on when that one calls again.
func wake(c *conn, root agentbus.ExecutionID) error {
	_, err := c.exec(`UPDATE executions SET state = 'running', owner = '', expires = NULL, ended = NULL
		WHERE id = ?1 AND id = run AND state = 'paused' AND json_extract(halt, '$.kind') = 'waiting'
			AND NOT EXISTS (SELECT 1 FROM stopped_runs WHERE stopped_runs.run = executions.run)`, string(root))
	return err
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

const interruptByID = "SELECT " + interruptColumns + " FROM interrupts WHERE id = ?1"

// Interrupt returns an interrupt, and whether the store knows it. What is for its
// backend alone is with it until it is denied, or the turn that asked is finished:
// then it is erased.
func (s *Store) Interrupt(ctx context.Context, id agentbus.InterruptID) (agentbus.Interrupt, bool, error) {
	return only(ctx, s, "read an interrupt", readInterrupt, interruptByID, string(id))
}

// Interrupts returns interrupts in the order in which they were raised.
func (s *Store) Interrupts(ctx context.Context, q agentbus.InterruptQuery) ([]agentbus.Interrupt, error) {
	where, behind, order := " AND decision = ''", "> coalesce((SELECT number FROM interrupts WHERE id = ?1), 0)", "number"
	switch {
	case q.Decided:
		where, behind, order = " AND decision <> ''", "< coalesce((SELECT number FROM interrupts WHERE id = ?1), 9223372036854775807)", "number DESC"
	case q.All:
		where = ""
	}
	if q.Run != "" {
		where += " AND run = ?3"
	} else {
		where += " AND ?3 = ''"
	}
	return list(ctx, s, "list interrupts", readInterrupt, "SELECT "+interruptColumns+` FROM interrupts
		WHERE number `+behind+" AND (?2 = '' OR payer = ?2)"+where+" ORDER BY "+order+" LIMIT ?4",
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
		got, found, err := c.first(interruptByID, string(id))
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
	switch {
	case err != nil || won:
		return i, err
	case i.ID == "":
		return i, &agentbus.Error{
			Code: agentbus.CodeNotFound, Message: "there is no such interrupt",
			Explain: &agentbus.Explain{Rule: "R22", Next: "see agentbus inbox"},
		}
	}
	how := "was " + string(i.Resolution.Decision)
	if i.Resolution.Decision == agentbus.DecisionExpired {
		how = "expired"
	} else if i.Resolution.By != "" {
		how += " by " + i.Resolution.By
	}
	return i, &agentbus.Error{
		Code: agentbus.CodeRunConflict, Message: "this interrupt is decided already: it " + how + " at " + i.Resolution.At.UTC().Format(time.RFC3339),
		Explain: &agentbus.Explain{Rule: "R22", Observed: string(i.Resolution.Decision), Next: "nothing: an interrupt is decided once"},
	}
}

// ExpireInterrupts decides those whose time is up at a time, at most limit of
// them, and lets their runs go on. It returns how many. It writes nothing when
// there are none.
func (s *Store) ExpireInterrupts(ctx context.Context, at time.Time, limit int) (n int, err error) {
	const what, late = "expire interrupts", "SELECT id, root, expires FROM interrupts WHERE decision = '' AND expires <= ?1 ORDER BY expires LIMIT ?2"
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
