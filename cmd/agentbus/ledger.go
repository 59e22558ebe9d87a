package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

// ledgerVerbs show what calls came to.
type ledgerVerbs struct {
	Balance ledgerBalanceVerb `cmd:"" help:"Show what every payer's account comes to."`
	Export  ledgerExportVerb  `cmd:"" help:"Print the entries, a line each: JSON, or --csv."`
	Verify  ledgerVerifyVerb  `cmd:"" help:"Recompute every link and balance; exit 1 names the first bad entry."`
}

type ledgerBalanceVerb struct {
	Payer string `arg:"" optional:"" help:"Only this payer."`
}

// Run prints balances.
func (v *ledgerBalanceVerb) Run(ctx context.Context, a *app) error {
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	balances, err := s.Store().Balances(ctx, agentbus.Payer(v.Payer))
	if err != nil {
		return err
	}
	if len(balances) == 0 {
		return a.answer([]agentbus.Balance{}, "there is no account; the first call of a payer opens it\n")
	}
	rows := [][]string{{"PAYER", "CHARGED", "UNBILLED", "HELD", "CALLS", "VOIDS", "REPLAYS", "REFUSALS"}}
	for _, b := range balances {
		rows = append(rows, []string{
			dash(string(b.Payer)), "$" + b.Charged.USD(), "$" + b.Unbilled.USD(), "$" + b.Held.USD(),
			digits(b.Calls), digits(b.Voids), digits(b.Replays), digits(b.Refusals),
		})
	}
	return a.answer(balances, harmless(table(rows)))
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

type ledgerExportVerb struct {
	Payer string `placeholder:"PAYER" help:"Only this payer's entries."`
	CSV   bool   `name:"csv" help:"Comma-separated values with a head, in place of JSON lines."`
}

// exportPage is how many entries are read at once.
const exportPage = 1000

// Run prints entries by payer, in order.
func (v *ledgerExportVerb) Run(ctx context.Context, a *app) error {
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	balances, err := s.Store().Balances(ctx, agentbus.Payer(v.Payer))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(a.stdout)
	write, end := entryWriter(out, v.CSV)
	for _, b := range balances {
		for after, more := int64(0), true; more; {
			entries, err := s.Store().Entries(ctx, b.Payer, after, exportPage)
			if err != nil {
				return err
			}
			for i := range entries {
				if err := write(&entries[i]); err != nil {
					return err
				}
				after = entries[i].Seq
			}
			more = len(entries) == exportPage
		}
	}
	if err := end(); err != nil {
		return err
	}
	return out.Flush()
}

// entryHead names the columns of an export, as JSON names them.
var entryHead = []string{"payer", "seq", "kind", "call", "attempt", "agent", "run", "turn", "amount_micros", "unbilled_micros", "at", "prev", "hash"}

// entryWriter returns what writes an entry, and what ends the export.
func entryWriter(w io.Writer, asCSV bool) (write func(*agentbus.Entry) error, end func() error) {
	if !asCSV {
		enc := json.NewEncoder(w)
		return func(e *agentbus.Entry) error { return enc.Encode(e) }, func() error { return nil }
	}
	table := csv.NewWriter(w)
	_ = table.Write(entryHead) // what cannot be written is told at the end
	return func(e *agentbus.Entry) error {
			return table.Write([]string{
				string(e.Payer), digits(e.Seq), string(e.Kind), digits(e.Call), strconv.Itoa(e.Attempt), e.Agent, string(e.Run), string(e.Turn),
				digits(int64(e.Amount)), digits(int64(e.Unbilled)), e.At.UTC().Format(time.RFC3339Nano),
				hex.EncodeToString(e.Prev[:]), hex.EncodeToString(e.Hash[:]),
			})
		}, func() error {
			table.Flush()
			return table.Error()
		}
}

func entriesOf(n int64) string {
	if n == 1 {
		return "1 entry"
	}
	return digits(n) + " entries"
}

type ledgerVerifyVerb struct{}

// Run verifies the ledger.
func (*ledgerVerifyVerb) Run(ctx context.Context, a *app) error {
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	v, err := s.Store().VerifyLedger(ctx)
	if err != nil {
		return err
	}
	if v.Fault == "" {
		return a.answer(v, fmt.Sprintf("the ledger is in order: %s of %s, $%s charged\n",
			entriesOf(v.Entries), plural(v.Payers, "payer"), v.Charged.USD()))
	}
	if a.JSON {
		if err := printJSON(a.stdout, v); err != nil {
			return err
		}
	}
	f := &failure{exit: exitFailed, what: "the ledger is not in order", why: harmless(v.Fault), next: "compare with an export or a copy made before; do not bill from this store until it is explained"}
	if e := v.Bad; e != nil {
		f.what = harmless(fmt.Sprintf("entry %d of %s is not what it must be (call %d, %s, %s)", e.Seq, dash(string(e.Payer)), e.Call, dash(e.Agent), dash(string(e.Turn))))
		if e.Seq == 0 {
			f.what = harmless(fmt.Sprintf("an entry of %s is missing (call %d, %s, %s)", dash(string(e.Payer)), e.Call, dash(e.Agent), dash(string(e.Turn))))
		}
	}
	return f
}
