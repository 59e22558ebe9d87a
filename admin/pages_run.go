package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/internal/typed"
)

// linesShown is how many rows of a tree a page of the console has.
const linesShown = 200

// A runPage is a page of one run that is being made.
type runPage struct {
	*runTree

	path   string // of the page
	began  time.Time
	took   time.Duration
	chosen int // row, or -1
}

// showRunPage is the screen of one run (U11). The row of ?turn= is chosen: of
// several turns of one id the first, or the one of ?at=.
func (a *API) showRunPage(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "turn", "at", "page", "with")
	if err != nil {
		return err
	}
	id := agentbus.RunID(r.PathValue("run"))
	t, err := a.tree(r.Context(), id)
	if err != nil {
		return err
	}
	p := &runPage{runTree: t, path: runPath(id)}
	p.measure()
	p.choose(q.Get("turn"), q.Get("at"))
	row := console.RunRow{RunSummary: t.RunSummary, Kind: t.Standing, Limit: t.Limit, Stop: stopAsk(r, &t.run)}
	c := console.Run{
		RunRow: row, Findings: p.findings(), Commands: p.commands(), Timeline: p.timeline(), With: q.Get("with"),
		Live: p.path + "/live?last=" + version(t.run),
	}
	if a.drives(&t.record) {
		c.Asks = p.asks(r)
	}
	done, err := a.actions(r.Context(), agentbus.ActionQuery{Run: id, Limit: actionsShown})
	if err != nil {
		return err
	}
	c.Actions = done.Data
	if len(t.record.Executions) > 0 && a.cfg.Cap != nil {
		c.Cap = a.cfg.Cap(t.record.Executions[0])
		left := c.Cap
		if p.Cost > left {
			left = 0 // it was resumed with more, which is not kept: what is left is not known
		}
		p.burn(&c.Timeline, left)
	} else {
		p.burn(&c.Timeline, 0)
	}
	if c.Lines, c.Pager, err = p.page(q.Get("page")); err != nil {
		return err
	}
	if p.chosen >= 0 {
		if c.Chosen, err = a.inspect(r, p); err != nil {
			return err
		}
	}
	if c.With != "" {
		c.Compared = a.compare(r.Context(), id, agentbus.RunID(c.With))
	}
	return a.page(w, r, "run", console.Page{Title: "Run " + string(id), Here: "/console/runs", Content: c})
}

// followRun tells the screen of a run when the run changes, until it is over.
func (a *API) followRun(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r, "last"); err != nil {
		return err
	}
	return a.follow(w, r, func(ctx context.Context) (string, bool, error) {
		v, err := a.run(ctx, agentbus.RunID(r.PathValue("run")))
		return version(v), over(&v), err
	})
}

// quiet is for how long a run that only has calls, and so no end of its own, is
// followed after the last of them.
const quiet = 10 * time.Minute

// over reports whether nothing more is expected of a run.
func over(v *run) bool {
	if v.Live > 0 || v.Asks > 0 {
		return false
	}
	return v.State == agentbus.RunDone || v.Stopped || v.State == "" && time.Since(v.Last) > quiet
}

// measure finds out when the run began and how long it took.
func (p *runPage) measure() {
	p.began, p.took = p.Began, p.Last.Sub(p.Began)
	if p.Standing == console.KindRunning {
		p.took = time.Since(p.began)
	}
	p.took = max(p.took, time.Microsecond)
}

// choose finds the row that is asked for.
func (p *runPage) choose(turn, at string) {
	p.chosen = slices.IndexFunc(p.rows, func(r treeRow) bool { return at != "" && r.Key == at })
	if p.chosen < 0 && turn != "" {
		p.chosen = slices.IndexFunc(p.rows, func(r treeRow) bool {
			return r.Interrupt == nil && (string(r.key().ID) == turn || shortTurn(&r, p.Run) == turn)
		})
	}
}

// url is where a row is shown, chosen.
func (p *runPage) url(i int) string {
	r := &p.rows[i]
	q := url.Values{"at": {r.Key}}
	if r.Interrupt == nil && r.key().ID != "" {
		q.Set("turn", string(r.key().ID))
	}
	return p.path + "?" + q.Encode()
}

// page returns the lines of a page, counted from 1; of "" the one with the
// chosen row.
func (p *runPage) page(number string) (lines []console.Line, pager console.Pager, err error) {
	pages := max(1, (len(p.rows)+linesShown-1)/linesShown)
	n := max(0, p.chosen)/linesShown + 1
	if number != "" {
		if n, err = strconv.Atoi(number); err != nil || n < 1 || n > pages {
			return nil, pager, invalid("there is no such page", "this run has 1 to "+strconv.Itoa(pages))
		}
	}
	from, to := (n-1)*linesShown, min(n*linesShown, len(p.rows))
	for i := from; i < to; i++ {
		lines = append(lines, p.line(i))
	}
	if pages == 1 {
		return lines, pager, nil
	}
	at := func(n int) string { return p.path + "?page=" + strconv.Itoa(n) }
	pager.Text = fmt.Sprintf("rows %d to %d of %d", from+1, to, len(p.rows))
	if n > 1 {
		pager.First, pager.Before = at(1), at(n-1)
	}
	if n < pages {
		pager.Next, pager.Last = at(n+1), at(pages)
	}
	return lines, pager, nil
}

// line is a row as the tree shows it.
func (p *runPage) line(i int) console.Line {
	r := &p.rows[i]
	l := console.Line{Key: r.Key, URL: p.url(i), Level: r.Level, Kind: r.Standing, Limit: p.Limit, Chosen: i == p.chosen}
	switch {
	case r.Interrupt != nil:
		l.IsAsk, l.Who, l.Turn = true, string(r.Interrupt.Ask.Kind), string(r.Interrupt.ID)
		l.Message, l.Began, l.Deadline = cmp.Or(r.Interrupt.Ask.Title, r.Interrupt.Ask.Prompt), r.Interrupt.Raised, r.Interrupt.Expires
		return l
	case r.Call != nil:
		p.ofCall(&l, r)
	default:
		t := r.Turn
		l.Who, l.Agent, l.Turn = string(cmp.Or(t.Speaker, agentbus.Speaker(t.Agent))), t.Agent, shortTurn(r, p.Run)
		l.Began, l.Cost, l.Usage, l.Took = t.Began, t.Cost, t.Reply.Usage, took(t.Began, t.Ended)
	}
	if r.Turn != nil && r.Turn.Error != nil && l.Message == "" {
		l.Code, l.Message = r.Turn.Error.Code, r.Turn.Error.Message
	}
	if l.Agent == l.Who {
		l.Agent = ""
	}
	if r.Branch != l.Cost {
		l.Branch = r.Branch
	}
	from := thousandths(l.Began.Sub(p.began), p.took)
	l.Bar = [2]int{min(from, 990), max(10, min(1000-from, thousandths(l.Took, p.took)))}
	return l
}

// ofCall fills in what the ledger knows of a call.
func (p *runPage) ofCall(l *console.Line, r *treeRow) {
	c := r.Call
	l.IsCall, l.Who, l.Agent, l.Turn = true, string(cmp.Or(c.Speaker, agentbus.Speaker(c.Agent))), c.Agent, shortTurn(r, p.Run)
	l.Depth, l.Usage, l.Cost, l.Code, l.Message = c.Depth, c.Usage, c.Cost, c.Code, c.Message
	l.Began, l.Took = c.Began, took(c.Began, c.Ended)
	mark := func(kind console.Kind, format string, args ...any) {
		l.Marks = append(l.Marks, console.Mark{Kind: kind, Text: fmt.Sprintf(format, args...)})
	}
	switch {
	case c.State == agentbus.CallRefused && c.Repeats > 0:
		mark("", "asked %d times, no work done", c.Repeats+1)
	case c.State == agentbus.CallVoided:
		mark("", "×%d, not charged", c.Attempts)
	case c.State == agentbus.CallSettled && c.Attempts > 1:
		mark("", "×%d, charged once", c.Attempts)
	}
	if c.Replays > 0 {
		mark(console.KindReplayed, "answered from memory, %s", times(c.Replays))
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

func took(began, ended time.Time) time.Duration {
	if ended.IsZero() {
		return time.Since(began).Truncate(time.Second) // it would differ at each look otherwise
	}
	return ended.Sub(began)
}

// thousandths is how much of whole d is.
func thousandths(d, whole time.Duration) int {
	return int(max(0, min(1000, float64(d)/float64(whole)*1000)))
}

// shortTurn leaves the run out of a turn id.
func shortTurn(r *treeRow, run agentbus.RunID) string {
	id := string(r.key().ID)
	if rest, ok := strings.CutPrefix(id, string(run)+"."); ok {
		return rest
	}
	return cmp.Or(id, "(no turn)")
}

// commands are what is done about a run in the terminal.
func (p *runPage) commands() []console.Command {
	run := typed.Operand(string(p.Run))
	c := []console.Command{{Name: "Trace", Text: "agentbus trace " + run}}
	if len(p.record.Executions) == 0 {
		return c
	}
	c = append(c, console.Command{Name: "Replay against its record", Text: "agentbus replay " + run})
	if p.State == agentbus.RunPaused {
		c = append(c, console.Command{Name: "Resume", Text: "agentbus resume " + run})
	}
	return c
}

// compare finds where the transcripts of two runs part.
func (a *API) compare(ctx context.Context, one, other agentbus.RunID) *console.Comparison {
	c := &console.Comparison{Sides: [2]console.Side{{Run: one}, {Run: other}}}
	var said [2][]agentbus.Turn
	for i := range c.Sides {
		loops, err := a.cfg.Runs.Executions(ctx, c.Sides[i].Run)
		if err == nil && len(loops) == 0 {
			c.Fault = "no driver of this store performed run " + string(c.Sides[i].Run)
			return c
		}
		if err == nil {
			said[i], err = a.transcript(ctx, loops[0].ID)
		}
		if err != nil {
			c.Fault = problemOf(err).Message
			return c
		}
	}
	c.Same = agentbus.Common(said[0], said[1])
	c.Equal = c.Same == len(said[0]) && c.Same == len(said[1])
	for i := range c.Sides {
		if c.Sides[i].Ended = c.Same == len(said[i]); c.Sides[i].Ended {
			continue
		}
		next := said[i][c.Same]
		c.Sides[i].Speaker = next.Speaker
		if a.cfg.Content {
			c.Sides[i].Text, _ = clip(next.Reply.Text, maxSaid)
		}
	}
	return c
}

// transcript returns the turns of an execution that are done.
func (a *API) transcript(ctx context.Context, id agentbus.ExecutionID) (turns []agentbus.Turn, err error) {
	for t, err := range a.cfg.Runs.Turns(ctx, id) {
		if err != nil {
			return nil, err
		}
		if t.State == agentbus.TurnDone {
			turns = append(turns, t)
		}
	}
	return turns, nil
}
