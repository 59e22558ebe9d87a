package postgres

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/agentbus/agentbus"
)

// A call is a row of the ledger on a page, with what a decision about it needs.
type call struct {
	agentbus.CallRecord

	key      []byte
	kept     bool  // its answer is
	held     taken // while it executes
	place    int64 // of its next frame
	changed  bool
	rehold   bool    // held is to be written
	drop     bool    // the frames it had are to be removed
	frames   []frame // to be written, from place on
	reply    *stowed // to be written
	firstNew int64   // place of frames[0]
}

// A frame is a part of an answer as it is written.
type frame struct {
	data   []byte
	packed bool
}

// stow returns a part of an answer as a frame of its own: the committer may write
// it still when nobody waits for that any more.
func stow(part []byte) frame {
	if data, packed := pack(part, packPart); packed {
		return frame{data, true}
	}
	return frame{bytes.Clone(part), false}
}

// stowed is an answer as it is written.
type stowed struct {
	head   any
	body   []byte
	packed bool
}

type (
	// keyed names a call by its key, numbered by its id.
	keyed struct {
		payer agentbus.Payer
		key   string
	}
	numbered struct {
		payer agentbus.Payer
		id    int64
	}
	// beside are the calls among which a turn's index is minted (P7).
	beside struct {
		run    agentbus.RunID
		payer  agentbus.Payer
		parent agentbus.TurnID
	}
)

// A ledgerPage is a part of the ledger under the locks of its payers and
// accounts.
type ledgerPage struct {
	places *places

	wantsKeys     map[keyed]bool
	wantsCalls    map[numbered]bool
	wantsAccounts map[string]bool
	wantsRuns     map[agentbus.RunID]bool
	wantsTasks    map[remote]bool
	fresh         int // ids that may be needed

	payers   map[agentbus.Payer]*link
	byKey    map[keyed]*call
	byID     map[int64]*call
	accounts map[string]*account
	minted   map[beside]int // the next free index
	ids      []int64
	tasks    map[remote]agentbus.Payer
	seen     []agentbus.RemoteTask
	entries  []agentbus.Entry
	sums     []link     // of the entries
	paid     [][]string // the accounts that each entry was spent of
	opened   map[agentbus.RunID]*call
	stopped  map[agentbus.RunID]bool // of wantsRuns
	ended    []room                  // calls that ended on this page
	recorded []recorded
	// recordedEnds are what attempts that ended add to that.
	recordedEnds []recordedEnd
}

// An account is a budget's on a page.
type account struct {
	agentbus.BudgetState

	changed bool
}

func newLedgerPage(places *places) *ledgerPage {
	return &ledgerPage{
		places:    places,
		wantsKeys: map[keyed]bool{}, wantsCalls: map[numbered]bool{}, wantsAccounts: map[string]bool{}, wantsRuns: map[agentbus.RunID]bool{},
		payers: map[agentbus.Payer]*link{}, byKey: map[keyed]*call{}, byID: map[int64]*call{}, accounts: map[string]*account{},
		minted: map[beside]int{}, opened: map[agentbus.RunID]*call{}, stopped: map[agentbus.RunID]bool{},
		wantsTasks: map[remote]bool{}, tasks: map[remote]agentbus.Payer{},
	}
}

// wantKey asks for the call of a key.
func (p *ledgerPage) wantKey(payer agentbus.Payer, key []byte) {
	p.wantsKeys[keyed{payer, string(key)}] = true
	p.payers[payer] = &link{}
}

// wantCall asks for a call by its id.
func (p *ledgerPage) wantCall(payer agentbus.Payer, id int64) {
	p.wantsCalls[numbered{payer, id}] = true
	p.payers[payer] = &link{}
}

// wantHold asks for the accounts of a hold.
func (p *ledgerPage) wantHold(h agentbus.Hold) {
	for _, b := range h.Budgets {
		p.wantsAccounts[b.Account] = true
	}
}

// load locks the payers, then reads, then locks the accounts: each in the order
// of its names, so that no two pages wait for each other.
func (p *ledgerPage) load(c *conn) error {
	if len(p.payers) == 0 {
		return nil
	}
	if err := p.lockPayers(c); err != nil {
		return err
	}
	if err := p.read(c); err != nil {
		return err
	}
	return p.lockAccounts(c)
}

// texts returns names as arguments, in the order of their bytes.
func texts[K ~string, V any](names map[K]V) []string {
	all := make([]string, 0, len(names))
	for name := range names {
		all = append(all, storable(string(name)))
	}
	slices.Sort(all)
	return all
}

// lockPayers locks the ends of the payers' chains.
func (p *ledgerPage) lockPayers(c *conn) error {
	return p.lock(c, texts(p.payers), "payer", func(r *row) {
		payer := agentbus.Payer(r.text())
		last := readLink(r)
		p.payers[payer] = &last
	})
}

// lock locks the rows of names in the table of a kind, which has them in a
// column of that name, and reads them. Rows that may not be there are made
// before any is locked: a page that makes one waits for nobody who waits for it.
func (p *ledgerPage) lock(c *conn, names []string, kind string, read func(*row)) error {
	unknown := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return p.places.knows(kind, name) })
	for range 2 {
		if len(unknown) > 0 {
			if _, err := c.exec("INSERT INTO "+kind+"s ("+kind+") SELECT unnest($1::text[]) ON CONFLICT DO NOTHING", unknown); err != nil {
				return err
			}
		}
		n := 0
		columns := map[string]string{"payer": linkColumns, "account": stateColumns}[kind]
		err := c.each(func(r *row) { read(r); n++ },
			"SELECT "+kind+", "+columns+" FROM "+kind+"s WHERE "+kind+" = ANY($1) ORDER BY "+kind+" FOR NO KEY UPDATE", names)
		if err != nil || n == len(names) {
			return err
		}
		unknown = names // somebody emptied the table
	}
	return &rowError{errors.New("the " + kind + "s that were made are not there")}
}

const readCalls = "SELECT " + callColumns + `, c.key, EXISTS (SELECT 1 FROM replies r WHERE r.call_id = c.id), h.amount, h.accounts,
		CASE WHEN c.state = 'executing' THEN coalesce((SELECT max(place) + 1 FROM frames f WHERE f.call_id = c.id), 0) END
	FROM calls c LEFT JOIN holds h ON h.call_id = c.id `

// read reads what the page wants of its payers, in one round trip.
func (p *ledgerPage) read(c *conn) error {
	var l load
	var payers []string
	var keys [][]byte
	for k := range p.wantsKeys {
		payers, keys = append(payers, storable(string(k.payer))), append(keys, []byte(k.key))
	}
	if len(keys) > 0 {
		l.ask(p.readCall, readCalls+"JOIN unnest($1::text[], $2::bytea[]) w (payer, key) ON c.payer = w.payer AND c.key = w.key", payers, keys)
	}
	payers = nil
	var ids []int64
	for k := range p.wantsCalls {
		payers, ids = append(payers, storable(string(k.payer))), append(ids, k.id)
	}
	if len(ids) > 0 {
		l.ask(p.readCall, readCalls+"JOIN unnest($1::text[], $2::int8[]) w (payer, id) ON c.payer = w.payer AND c.id = w.id", payers, ids)
	}
	if p.fresh > 0 {
		l.ask(func(r *row) { p.ids = append(p.ids, r.int64()) }, "SELECT nextval('call_ids') FROM generate_series(1, $1)", p.fresh)
	}
	p.readMinted(&l)
	p.readTasks(&l)
	if len(p.wantsRuns) > 0 {
		l.ask(func(r *row) { p.stopped[agentbus.RunID(r.text())] = true }, "SELECT run FROM stopped_runs WHERE run = ANY($1)", texts(p.wantsRuns))
		l.ask(func(r *row) { delete(p.wantsRuns, agentbus.RunID(r.text())) }, "SELECT run FROM opened_runs WHERE run = ANY($1)", texts(p.wantsRuns))
	}
	return l.run(c)
}

func (p *ledgerPage) readCall(r *row) {
	k := &call{CallRecord: readCall(r), key: r.blob(), kept: r.bool()}
	k.held = readTaken(r)
	k.place = r.int64()
	if known := p.byID[k.ID]; known != nil {
		k = known // by its key, and by its id
	}
	p.byID[k.ID], p.byKey[keyed{k.Payer, string(k.key)}] = k, k
	for _, name := range k.held.accounts {
		p.wantsAccounts[name] = true
	}
}

func (p *ledgerPage) readMinted(l *load) {
	var runs, payers, parents []string
	for k := range p.minted {
		runs, payers, parents = append(runs, storable(string(k.run))), append(payers, storable(string(k.payer))), append(parents, storable(string(k.parent)))
	}
	if len(runs) == 0 {
		return
	}
	l.ask(func(r *row) {
		k := beside{agentbus.RunID(r.text()), agentbus.Payer(r.text()), agentbus.TurnID(r.text())}
		p.minted[k] = r.int()
	}, `SELECT w.run, w.payer, w.parent, coalesce((SELECT max(turn_index) + 1 FROM calls c WHERE c.run = w.run AND c.payer = w.payer AND c.parent = w.parent), 0)
		FROM unnest($1::text[], $2::text[], $3::text[]) w (run, payer, parent)`, runs, payers, parents)
}

// lockAccounts locks the accounts that the page may change.
func (p *ledgerPage) lockAccounts(c *conn) error {
	if len(p.wantsAccounts) == 0 {
		return nil
	}
	return p.lock(c, texts(p.wantsAccounts), "account", func(r *row) {
		name := r.text()
		p.accounts[name] = &account{BudgetState: readState(r, name)}
	})
}

// insert puts a new call on the page.
func (p *ledgerPage) insert(record agentbus.CallRecord, key []byte) *call {
	record.ID, p.ids = p.ids[0], p.ids[1:]
	k := &call{CallRecord: record, key: key, changed: true}
	p.byID[k.ID], p.byKey[keyed{k.Payer, string(key)}] = k, k
	if next, asked := p.minted[beside{k.Run, k.Payer, k.Parent}]; asked {
		p.minted[beside{k.Run, k.Payer, k.Parent}] = max(next, k.TurnKey.ID.Index(k.Run)+1)
	}
	if p.wantsRuns[k.Run] && p.opened[k.Run] == nil {
		p.opened[k.Run] = k
	}
	return k
}

// dropFrames forgets what a call streamed.
func (k *call) dropFrames() {
	if k.place > 0 {
		k.drop = true
	}
	k.frames, k.place, k.firstNew = nil, 0, 0
}

// addFrame puts data behind the frames of a call.
func (k *call) addFrame(data frame) {
	if len(k.frames) == 0 {
		k.firstNew = k.place
	}
	k.frames = append(k.frames, data)
	k.place++
}

// write writes what was changed, a statement a table, in one round trip.
func (p *ledgerPage) write(c *conn) error {
	calls, frames, replies, holds := callSheet.rows(), frameSheet.rows(), replySheet.rows(), holdSheet.rows()
	var dropped, reheld []int64
	for _, id := range slices.Sorted(maps.Keys(p.byID)) {
		k := p.byID[id]
		if k.changed {
			calls.add(callValues(k)...)
		}
		if k.drop {
			dropped = append(dropped, id)
		}
		for i, part := range k.frames {
			frames.add(id, k.firstNew+int64(i), part.data, part.packed)
		}
		if k.reply != nil {
			replies.add(id, k.reply.head, blob(k.reply.body), k.reply.packed)
		}
		if k.rehold {
			reheld = append(reheld, id)
			if k.held.accounts != nil {
				holds.add(id, int64(k.held.amount), accountsText(k.held.accounts))
			}
		}
	}
	var b pgx.Batch
	if dropped != nil {
		b.Queue("DELETE FROM frames WHERE call_id = ANY($1)", dropped)
	}
	if reheld != nil {
		b.Queue("DELETE FROM holds WHERE call_id = ANY($1)", reheld)
	}
	p.queueBooks(&b)
	for _, r := range []*rows{calls, frames, replies, holds} {
		r.queue(&b)
	}
	slices.SortFunc(p.seen, func(a, b agentbus.RemoteTask) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.ID, b.ID))
	})
	for i := range p.seen {
		b.Queue(seesTask, seenTask(&p.seen[i])...)
	}
	p.queueRecordings(&b)
	p.queueRuns(&b)
	return c.send(&b)
}

// queueBooks adds the entries, the ends of their chains, and the accounts.
func (p *ledgerPage) queueBooks(b *pgx.Batch) {
	entries, payers, accounts := entrySheet.rows(), payerSheet.rows(), accountSheet.rows()
	grown := map[agentbus.Payer]bool{}
	for i := range p.entries {
		entries.add(p.sums[i].values(&p.entries[i], p.paid[i])...)
		grown[p.entries[i].Payer] = true
	}
	for payer := range grown {
		l := p.payers[payer]
		payers.add(string(payer), l.seq, l.hash[:], int64(l.charged), int64(l.unbilled), l.charges)
	}
	for name, a := range p.accounts {
		if a.changed {
			accounts.add(name, int64(a.Held), int64(a.Spent), a.Calls, micros(a.Opened))
		}
	}
	for _, r := range []*rows{entries, payers, accounts} {
		r.queue(b)
	}
}

// queueRuns adds the runs that were opened: last, and in order, because others
// may be about to add them too.
func (p *ledgerPage) queueRuns(b *pgx.Batch) {
	runs := runSheet.rows()
	for _, run := range slices.Sorted(maps.Keys(p.opened)) {
		if k := p.opened[run]; run != "" {
			runs.add(string(run), micros(k.Began), string(k.Payer))
		}
	}
	runs.queue(b)
}

// written remembers what is there now, and rings for calls that ended.
func (p *ledgerPage) written(s *Store) {
	for payer := range p.payers {
		s.places.know("payer", storable(string(payer)))
	}
	for name := range p.accounts {
		s.places.know("account", storable(name))
	}
	for id, k := range p.byID {
		if k.State == agentbus.CallExecuting {
			s.places.remember(id, k.Payer)
		}
	}
	s.bells.ring(p.ended...)
}
