package admin

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// An Export is the entries of a ledger as they leave the bus (G28): by payer,
// each payer's in order, with every field that is under an entry's hash, so
// that who holds the export can check it alone.
type Export struct {
	Ledger Ledger
	Payer  agentbus.Payer // "": every payer
	CSV    bool           // with a head, in place of a JSON object a line
}

// exportPage is how many entries are read at once.
const exportPage = 1000

// exportHead names the columns of a CSV export, as JSON names them.
var exportHead = []string{
	"payer", "seq", "kind", "call", "attempt", "key", "agent", "run", "turn",
	"amount_micros", "amount_usd", "unbilled_micros", "unbilled_usd", "at", "prev", "hash",
}

// Write writes the export to w. Where it fails, what was written is a part.
func (x Export) Write(ctx context.Context, w io.Writer) error {
	balances, err := x.Ledger.Balances(ctx, x.Payer)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	write := func(e *agentbus.Entry) error {
		line, err := encode(e)
		if err == nil {
			_, err = out.Write(line)
		}
		return err
	}
	table := csv.NewWriter(out)
	if x.CSV {
		write = func(e *agentbus.Entry) error { return table.Write(columns(e)) }
		err = table.Write(exportHead)
	}
	for i := 0; i < len(balances) && err == nil; i++ {
		err = x.account(ctx, balances[i].Payer, write)
	}
	if err != nil {
		return err
	}
	if table.Flush(); table.Error() != nil {
		return table.Error()
	}
	return out.Flush()
}

// account writes the entries of one payer.
func (x Export) account(ctx context.Context, payer agentbus.Payer, write func(*agentbus.Entry) error) error {
	for after := int64(0); ; {
		entries, err := x.Ledger.Entries(ctx, payer, after, exportPage)
		if err != nil || len(entries) == 0 {
			return err
		}
		for i := range entries {
			if err := write(&entries[i]); err != nil {
				return err
			}
		}
		after = entries[len(entries)-1].Seq
	}
}

// columns are the cells of an entry, under exportHead.
func columns(e *agentbus.Entry) []string {
	return []string{
		cell(string(e.Payer)), number(e.Seq), string(e.Kind), number(e.Call), strconv.Itoa(e.Attempt), hex.EncodeToString(e.Key[:]),
		cell(e.Agent), cell(string(e.Run)), cell(string(e.Turn)),
		number(int64(e.Amount)), e.Amount.USD(), number(int64(e.Unbilled)), e.Unbilled.USD(),
		e.At.UTC().Format(time.RFC3339Nano), hex.EncodeToString(e.Prev[:]), hex.EncodeToString(e.Hash[:]),
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// cell is a text that callers chose as a spreadsheet may read it: never as a
// formula.
func cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
