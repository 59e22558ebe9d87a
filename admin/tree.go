package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// A treeRow is a line of a run's tree: a call, a turn that no call was recorded
// of, or what a turn asked. Rows come depth first, those inside one in the order
// in which they began.
type treeRow struct {
	Key       string               `json:"key"`   // the same at every look
	Level     int                  `json:"level"` // how many turns it is made inside of
	Standing  console.Kind         `json:"standing"`
	Branch    agentbus.Micros      `json:"branch_cost_micros"` // of it and what was made inside it
	Call      *agentbus.CallRecord `json:"call,omitempty"`
	Turn      *agentbus.Turn       `json:"turn,omitempty"` // of the journal, without its reply
	Interrupt *agentbus.Interrupt  `json:"interrupt,omitempty"`
}

// key is the turn of a row.
func (r *treeRow) key() agentbus.TurnKey {
	if r.Call != nil {
		return r.Call.TurnKey
	}
	return r.Turn.TurnKey
}

// A runTree is a run, whole, as of one moment but for what run says of it.
type runTree struct {
	run

	record agentbus.RunRecord
	rows   []treeRow
}

// tree reads a run whole.
func (a *API) tree(ctx context.Context, id agentbus.RunID) (*runTree, error) {
	v, err := a.run(ctx, id)
	if err != nil {
		return nil, err
	}
	t := &runTree{run: v}
	if t.record, err = a.cfg.Records.RunRecord(ctx, id); err != nil {
		return nil, err
	}
	t.rows = rowsOf(&t.record)
	return t, nil
}

// rowsOf arranges what is known of a run.
func rowsOf(rec *agentbus.RunRecord) []treeRow {
	all := pairs(rec)
	keys := make([]agentbus.TurnKey, len(all))
	for i := range all {
		keys[i] = all[i].key()
	}
	inside := agentbus.Enclosing(keys)
	below := make([][]int, len(all)+1) // the last are those at the top
	for i, at := range inside {
		if at < 0 {
			at = len(all)
		}
		below[at] = append(below[at], i)
	}
	for i, at := range slices.Backward(inside) { // what is inside comes behind what it is inside of
		if at >= 0 {
			all[at].Branch += all[i].Branch
		}
	}
	type asker struct {
		execution agentbus.ExecutionID
		turn      agentbus.TurnID
	}
	asked := map[asker][]*agentbus.Interrupt{}
	for i := range rec.Interrupts {
		by := asker{rec.Interrupts[i].Execution, rec.Interrupts[i].Turn}
		asked[by] = append(asked[by], &rec.Interrupts[i])
	}
	rows := make([]treeRow, 0, len(all)+len(rec.Interrupts))
	type step struct{ i, level int }
	stack := make([]step, 0, len(all))
	push := func(at, level int) {
		for _, i := range slices.Backward(below[at]) {
			stack = append(stack, step{i, level})
		}
	}
	for push(len(all), 0); len(stack) > 0; {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		r := all[s.i]
		r.Level = s.level
		rows = append(rows, r)
		if r.Turn != nil {
			for _, i := range asked[asker{r.Turn.Execution, r.Turn.ID}] {
				rows = append(rows, treeRow{Key: string(i.ID), Level: s.level + 1, Standing: askStanding(i), Interrupt: i})
			}
		}
		push(s.i, s.level+1)
	}
	return rows
}

// pairs puts each call and its turn of the journal together, in the order in
// which they began.
func pairs(rec *agentbus.RunRecord) []treeRow {
	type place struct {
		path   string
		parent agentbus.TurnID
		id     agentbus.TurnID
	}
	turns := make(map[place]*agentbus.Turn, len(rec.Turns))
	for i := range rec.Turns {
		k := rec.Turns[i].TurnKey
		turns[place{k.Path, k.Parent, k.ID}] = &rec.Turns[i]
	}
	open := slices.ContainsFunc(rec.Interrupts, func(i agentbus.Interrupt) bool { return i.Open() })
	rows := make([]treeRow, 0, len(rec.Calls))
	for i := range rec.Calls {
		c := &rec.Calls[i]
		at := place{c.Path, c.Parent, c.TurnKey.ID}
		r := treeRow{Key: "c" + strconv.FormatInt(c.ID, 10), Call: c, Branch: c.Cost, Standing: callStanding(c)}
		if open && c.State == agentbus.CallVoided && asked(c) {
			r.Standing = console.KindWaiting // its caller was told that somebody is asked
		}
		if t := turns[at]; t != nil && c.State != agentbus.CallRefused {
			r.Turn = t
			if t.State == agentbus.TurnWaiting {
				r.Standing = console.KindWaiting
			}
			delete(turns, at)
		}
		rows = append(rows, r)
	}
	for i := range rec.Turns {
		t := &rec.Turns[i]
		if turns[place{t.Path, t.Parent, t.ID}] == t {
			rows = append(rows, treeRow{Key: string(t.Execution) + "-" + strconv.Itoa(t.Index), Turn: t, Branch: t.Cost, Standing: turnStanding(t)})
		}
	}
	slices.SortStableFunc(rows, func(x, y treeRow) int { return cmp.Compare(x.began(), y.began()) })
	return rows
}

// began is when a row began, in microseconds.
func (r *treeRow) began() int64 {
	if r.Call != nil {
		return r.Call.Began.UnixMicro()
	}
	return r.Turn.Began.UnixMicro()
}

func callStanding(c *agentbus.CallRecord) console.Kind {
	switch c.State {
	case agentbus.CallExecuting:
		return console.KindRunning
	case agentbus.CallRefused:
		return console.KindRefused
	case agentbus.CallVoided:
		if c.CallerLeft() {
			return console.KindStopped
		}
		return console.KindFailed
	case agentbus.CallSettled, agentbus.CallPassed:
	}
	return console.KindDone
}

func turnStanding(t *agentbus.Turn) console.Kind {
	switch t.State {
	case agentbus.TurnPending:
		return console.KindRunning
	case agentbus.TurnFailed:
		return console.KindFailed
	case agentbus.TurnCancelled:
		return console.KindStopped
	case agentbus.TurnWaiting:
		return console.KindWaiting
	case agentbus.TurnDone:
	}
	return console.KindDone
}

func askStanding(i *agentbus.Interrupt) console.Kind {
	switch {
	case i.Open():
		return console.KindWaiting
	case i.Resolution.Decision == agentbus.DecisionGranted:
		return console.KindDone
	}
	return console.KindRefused
}

// listTree lists the rows of a run's tree.
func (a *API) listTree(w http.ResponseWriter, r *http.Request) error {
	limit, after, _, err := numberedPage(r)
	if err != nil {
		return err
	}
	t, err := a.tree(r.Context(), agentbus.RunID(r.PathValue("run")))
	if err != nil {
		return err
	}
	l, err := cut(all(t.rows), limit, after, ordinal)
	return writePage(w, l, err)
}
