package sqlite

import (
	"context"

	"github.com/agentbus/agentbus"
)

// A link is the end of a payer's chain of entries, and what its entries sum up
// to (G28). The zero link is the end of an empty chain.
type link struct {
	seq      int64
	hash     agentbus.Digest
	charged  agentbus.Micros
	unbilled agentbus.Micros
	charges  int64
}

// linkColumns are the columns readLink reads, in its order.
const linkColumns = "seq, hash, charged_sum, unbilled_sum, charges"

func readLink(r *row) link {
	return link{seq: r.int64(), hash: r.digest(), charged: r.micros(), unbilled: r.micros(), charges: r.int64()}
}

// append makes e the entry behind l, with its place and hash, and returns the
// new end.
func (l link) append(e *agentbus.Entry) link {
	e.At = stored(e.At)
	e.Seq, e.Prev = l.seq+1, l.hash
	e.Hash = e.Sum()
	next := link{seq: e.Seq, hash: e.Hash, charged: l.charged + e.Amount, unbilled: l.unbilled + e.Unbilled, charges: l.charges}
	if e.Kind == agentbus.EntryCharge {
		next.charges++
	}
	return next
}

// insertEntry enters what args returns, and the accounts that it was spent of.
const insertEntry = `INSERT INTO entries (payer, seq, kind, call_id, attempt, amount, unbilled, at, hash, charged_sum, unbilled_sum, charges, accounts)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)`

// args returns e, which made l the end, as it is stored.
func (l link) args(e *agentbus.Entry) []any {
	return append(make([]any, 0, 13), // and one for the accounts
		string(e.Payer), e.Seq, string(e.Kind), e.Call, int64(e.Attempt), int64(e.Amount), int64(e.Unbilled), micros(e.At), e.Hash[:],
		int64(l.charged), int64(l.unbilled), l.charges)
}

// enter appends the entry of a, now that its amounts are known, to its payer's
// chain; it was spent of the accounts paid.
func (a *attempt) enter(c *conn, paid []string) error {
	last, known := c.links[a.entry.Payer]
	if !known {
		r, found, err := c.first(lastLink, string(a.entry.Payer))
		if err != nil {
			return err
		}
		if found {
			last = readLink(r)
		}
	}
	next := last.append(&a.entry)
	if len(c.links) >= maxLinks {
		clear(c.links)
	}
	c.links[a.entry.Payer] = next
	_, err := c.exec(insertEntry, append(next.args(&a.entry), accountsText(paid))...)
	return err
}

// lastLink finds the end of a payer's chain.
const lastLink = "SELECT " + linkColumns + " FROM entries WHERE payer = ?1 ORDER BY seq DESC LIMIT 1"

// maxLinks is how many payers' ends of chain are remembered.
const maxLinks = 10_000

// entryColumns are the columns readEntry reads, in its order. The hash of the
// entry before is that of the row before.
const entryColumns = `e.payer, e.seq, e.kind, e.call_id, e.attempt, e.amount, e.unbilled, e.at, e.hash,
	coalesce(c.key, x''), coalesce(c.agent, ''), coalesce(c.run, ''), coalesce(c.turn, '')`

func readEntry(r *row) agentbus.Entry {
	e := agentbus.Entry{Payer: agentbus.Payer(r.text()), Seq: r.int64(), Kind: agentbus.EntryKind(r.text()), Call: r.int64(), Attempt: r.int()}
	e.Amount, e.Unbilled, e.At, e.Hash = r.micros(), r.micros(), r.time(), r.digest()
	e.Key, e.Agent, e.Run, e.Turn = r.digest(), r.text(), agentbus.RunID(r.text()), agentbus.TurnID(r.text())
	return e
}

// entriesOf selects the entries of a payer, for readLinked.
const entriesOf = "SELECT " + entryColumns + `, coalesce(p.hash, x'') FROM entries e LEFT JOIN calls c ON c.id = e.call_id
	LEFT JOIN entries p ON p.payer = e.payer AND p.seq = e.seq - 1 WHERE e.payer = ?1`

// readLinked reads an entry, and the hash of the one before.
func readLinked(r *row) agentbus.Entry {
	e := readEntry(r)
	e.Prev = r.digest()
	return e
}

// Entries returns a payer's entries after seq, in order, at most limit of them
// (G28).
func (s *Store) Entries(ctx context.Context, payer agentbus.Payer, after int64, limit int) ([]agentbus.Entry, error) {
	return list(ctx, s, "read the entries of a payer", readLinked, entriesOf+" AND e.seq > ?2 ORDER BY e.seq LIMIT ?3", string(payer), after, limit)
}

// CallEntries returns the entries of one call of a payer, in order: one for each
// of its attempts that ended.
func (s *Store) CallEntries(ctx context.Context, payer agentbus.Payer, call int64) ([]agentbus.Entry, error) {
	return list(ctx, s, "read the entries of a call", readLinked, entriesOf+" AND e.call_id = ?2 ORDER BY e.seq", string(payer), call)
}
