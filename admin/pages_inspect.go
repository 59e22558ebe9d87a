package admin

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/internal/typed"
)

const (
	maxSaid      = 64 << 10 // bytes of an answer that a page shows
	maxEvents    = 100      // of a turn that a page shows
	maxScanned   = 20_000   // events that are looked at for them
	maxHopsCalls = 500      // of a run whose hops are verified while a page is made
)

// inspect tells all that is known of the chosen row.
func (a *API) inspect(req *http.Request, p *runPage) (*console.Inspector, error) {
	ctx, r := req.Context(), &p.rows[p.chosen]
	v := &console.Inspector{Line: p.line(p.chosen), Call: r.Call, JournalTurn: r.Turn, Ask: r.Interrupt, Content: a.cfg.Content, Commands: p.rowCommands(r)}
	if r.Interrupt != nil {
		v.Raw = console.Pretty(r.Interrupt)
		return v, nil
	}
	v.Raw = console.Pretty(r)
	if a.drives(&p.record) {
		v.Fork = p.askFork(req, r)
	}
	if err := a.inspectTurn(ctx, r, v); err != nil {
		return nil, err
	}
	if r.Call == nil {
		return v, nil
	}
	if err := a.inspectRecording(ctx, v); err != nil {
		return nil, err
	}
	v.Known = slices.ContainsFunc(a.cfg.Agents.Agents(), func(g Agent) bool { return g.Name == r.Call.Agent })
	v.Credential = "its own: it pays for itself"
	if r.Call.Caller != string(r.Call.Payer) {
		v.Credential = "forwarded: " + r.Call.Caller + " called on the bill of " + string(r.Call.Payer)
	}
	v.Hops = a.hops(ctx, p)
	if r.Call.State == agentbus.CallRefused {
		return v, nil
	}
	entries, err := a.cfg.Records.CallEntries(ctx, r.Call.Payer, r.Call.ID)
	v.Entries = entries
	return v, err
}

// inspectRecording reads what the call was asked and answered, and with which
// headers; where that is not recorded it makes these of what the ledger keeps.
func (a *API) inspectRecording(ctx context.Context, v *console.Inspector) (err error) {
	if v.Recorded, err = a.recording(ctx, v.Call.ID); err != nil {
		return err
	}
	if v.Recorded == nil {
		v.Headers = headersOf(v.Call)
		return nil
	}
	v.Headers = v.Recorded.Headers
	v.Asked, v.Answered = onPage(v.Call.ID, &v.Recorded.RecordedBody), onPage(v.Call.ID, v.Recorded.Answer)
	if v.Said == "" && v.Answered != nil {
		v.Said, v.SaidMore = clip(wordsOf(v.Answered.Body), maxSaid)
	}
	return nil
}

// inspectTurn reads what the journal has of the turn: its answer, where that may
// be shown, and its events.
func (a *API) inspectTurn(ctx context.Context, r *treeRow, v *console.Inspector) error {
	if r.Turn == nil {
		return nil
	}
	if a.cfg.Content {
		for t, err := range a.cfg.Runs.Turns(ctx, r.Turn.Execution) {
			if err != nil {
				return err
			}
			if t.Index >= r.Turn.Index {
				v.Said, v.SaidMore = clip(t.Reply.Text, maxSaid)
				break
			}
		}
		if e, _, err := a.cfg.Runs.Execution(ctx, r.Turn.Execution); err != nil {
			return err
		} else if e.First == r.Turn.Index {
			v.Seed, _ = clip(e.Seed, maxSaid)
		}
	}
	n := 0
	for e, err := range a.cfg.Runs.Events(ctx, r.Turn.Execution, -1) {
		if agentbus.CodeOf(err) == agentbus.CodeReplyExpired {
			break // too old to be kept
		}
		if err != nil {
			return err
		}
		if n++; n > maxScanned || len(v.Events) == maxEvents {
			v.EventsMore = true
			break
		}
		if e.Turn == r.Turn.ID {
			v.Events = append(v.Events, e)
		}
	}
	return nil
}

// clip shortens what was said to most bytes, and tells how many are left out.
func clip(s string, most int) (shown string, left int) {
	if len(s) <= most {
		return s, 0
	}
	shown = s[:most]
	for !utf8.ValidString(shown) && len(shown) > most-utf8.UTFMax {
		shown = shown[:len(shown)-1]
	}
	return shown, len(s) - len(shown)
}

// headersOf writes the protocol headers of a call as it came and as it goes on
// (P6, P8), from what the ledger keeps of it.
func headersOf(c *agentbus.CallRecord) []console.Header {
	came := agentbus.Lineage{Run: c.Run, Turn: c.TurnKey.ID, Parent: c.Parent, Speaker: c.Speaker, Depth: c.Depth, Path: c.Path}
	in, out := http.Header{}, http.Header{}
	came.SetHeaders(in)
	came.Forward().SetHeaders(out)
	if c.State == agentbus.CallRefused {
		out = http.Header{}
	}
	if c.Caller != string(c.Payer) {
		const name = "X-Tangle-Forwarded-Authorization"
		in.Set(name, "[redacted]")
		if len(out) > 0 {
			out.Set(name, "[redacted], where the agent may have it")
		}
	}
	return headerLines(in, out)
}

// hops says whether the signed hops of the run are in order (C16).
func (a *API) hops(ctx context.Context, p *runPage) string {
	command := "agentbus trace verify " + typed.Operand(string(p.Run))
	if a.cfg.Hops == nil || len(p.record.Calls) > maxHopsCalls {
		return "verify with " + command
	}
	v, err := a.cfg.Hops(ctx, p.Run)
	switch {
	case err != nil:
		return "none: " + problemOf(err).Message
	case v.Fault != "":
		return "NOT valid: " + v.Fault
	case len(v.Hops) == 0:
		return "none in this run"
	}
	return fmt.Sprintf("valid: %d signed in this run, in order; %d calls without one, made while hops were not signed or with their hops gone", len(v.Hops), v.Unsigned)
}

// rowCommands are what is done about a row in the terminal.
func (p *runPage) rowCommands(r *treeRow) []console.Command {
	run := typed.Operand(string(p.Run))
	commands := []console.Command{{Name: "Copy trace command", Text: "agentbus trace " + run}}
	if r.Interrupt != nil {
		id := typed.Word(string(r.Interrupt.ID))
		return append(commands, console.Command{Name: "Copy approve", Text: "agentbus approve " + id}, console.Command{Name: "Copy deny", Text: "agentbus deny " + id})
	}
	if r.Call != nil {
		commands = append(commands, console.Command{Name: "Copy as curl", Text: curlOf(r.Call)})
	}
	if r.Turn != nil && len(p.record.Executions) > 0 && r.Turn.Execution == p.record.Executions[0].ID {
		commands = append(commands, console.Command{Name: "Copy fork command", Text: fmt.Sprintf("agentbus replay --from %d %s", r.Turn.Index, run)})
	}
	return commands
}

// curlOf is a call as it came, for the terminal; what was asked is not kept.
func curlOf(c *agentbus.CallRecord) string {
	lineage := http.Header{}
	agentbus.Lineage{Run: c.Run, Turn: c.TurnKey.ID, Parent: c.Parent, Speaker: c.Speaker, Depth: c.Depth, Path: c.Path}.SetHeaders(lineage)
	var b strings.Builder
	b.WriteString(`curl "$AGENTBUS_URL/v1/chat/completions" -H "Authorization: Bearer $AGENTBUS_TOKEN" -H 'Content-Type: application/json'`)
	for _, name := range slices.Sorted(maps.Keys(lineage)) {
		b.WriteString(" -H " + typed.Word(strings.ToLower(name)+": "+lineage.Get(name)))
	}
	body := map[string]any{"model": c.Agent, "messages": []map[string]string{{"role": "user", "content": "…"}}}
	line, _ := encode(body) // strings can be encoded
	return b.String() + " -d " + typed.Word(strings.TrimSpace(string(line)))
}
