package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
)

// ledgerVerbs show what calls came to.
type ledgerVerbs struct {
	Balance ledgerBalanceVerb `cmd:"" help:"Show what every payer's account comes to."`
	Export  ledgerExportVerb  `cmd:"" help:"Print the entries, a line each: JSON, or --csv."`
	Verify  ledgerVerifyVerb  `cmd:"" help:"Recompute every link, balance and budget; exit 1 names the first bad one."`
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
	return a.answer(balances, a.listing(rows))
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

type ledgerExportVerb struct {
	Payer string `placeholder:"PAYER" help:"Only this payer's entries."`
	CSV   bool   `name:"csv" help:"Comma-separated values with a head, in place of JSON lines."`
}

// Run prints entries by payer, in order.
func (v *ledgerExportVerb) Run(ctx context.Context, a *app) error {
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	return admin.Export{Ledger: s.Store(), Payer: agentbus.Payer(v.Payer), CSV: v.CSV}.Write(ctx, a.stdout)
}

func entriesOf(n int64) string {
	if n == 1 {
		return "1 entry"
	}
	return digits(n) + " entries"
}

type ledgerVerifyVerb struct {
	File string `complete:"file" placeholder:"FILE" help:"Verify an export in JSON lines in place of the store; - is standard input."`
}

// Run verifies the ledger, or an export of it.
func (v *ledgerVerifyVerb) Run(ctx context.Context, a *app) error {
	if v.File != "" {
		verdict, err := v.verifyFile(a)
		if err != nil {
			return err
		}
		return tellVerdict(a, verdict)
	}
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	verdict, err := s.Store().VerifyLedger(ctx)
	if err != nil {
		return err
	}
	return tellVerdict(a, verdict)
}

// verifyFile recomputes every hash and link of an export. Entries that were cut
// off a payer's end, and accounts that were left out whole, do not show in it.
func (v *ledgerVerifyVerb) verifyFile(a *app) (verdict agentbus.LedgerVerdict, err error) {
	in := a.stdin
	if v.File != "-" {
		f, err := os.Open(v.File)
		if err != nil {
			return verdict, unreadable(v.File, err)
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	last := map[agentbus.Payer]agentbus.Entry{}
	for dec := json.NewDecoder(in); verdict.Fault == ""; {
		var e agentbus.Entry
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if _, broken := errors.AsType[*fs.PathError](err); broken {
			return verdict, unreadable(v.File, err)
		}
		if err != nil {
			return verdict, &failure{exit: exitUsage, what: "the export is not JSON lines of `agentbus ledger export`", why: err.Error(), next: "export it without --csv"}
		}
		if e.Seq < 1 || e.Payer == "" {
			return verdict, &failure{exit: exitUsage, what: "the export is not JSON lines of `agentbus ledger export`", why: "line " + digits(verdict.Entries+1) + " is no entry: it has no payer, or no place among the payer's entries", next: "name what agentbus ledger export has written"}
		}
		before := last[e.Payer]
		switch {
		case e.Seq != before.Seq+1 || e.Prev != before.Hash:
			verdict.Bad, verdict.Fault = &e, "it does not follow the entry before it"
		case e.Hash != e.Sum():
			verdict.Bad, verdict.Fault = &e, "its hash is not that of its fields"
		}
		last[e.Payer] = e
		verdict.Entries++
		verdict.Charged += e.Amount
	}
	verdict.Payers = len(last)
	return verdict, nil
}

func unreadable(file string, err error) *failure {
	return &failure{exit: exitUsage, what: "the export " + file + " cannot be read", why: cause(err), next: "name what agentbus ledger export has written, or - for standard input"}
}

// tellVerdict prints what a verification found; a fault ends with exit 1.
func tellVerdict(a *app, v agentbus.LedgerVerdict) error {
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
