package agentbus

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// An EntryKind says what an entry of the ledger is about.
type EntryKind string

// The kinds of entry.
const (
	EntryCharge EntryKind = "charge" // a call was settled
	EntryVoid   EntryKind = "void"   // an attempt failed: amount 0
)

// An Entry is one line of a payer's account. Entries are never changed, and
// each holds the hash of the one before, so that a change shows (G28).
type Entry struct {
	Payer    Payer     `json:"payer"`
	Seq      int64     `json:"seq"` // in its payer's sequence, dense from 1
	Kind     EntryKind `json:"kind"`
	Call     int64     `json:"call"` // CallRecord.ID
	Attempt  int       `json:"attempt"`
	Key      Digest    `json:"key"` // of the call: one key has at most one charge (I1)
	Agent    string    `json:"agent"`
	Run      RunID     `json:"run"`
	Turn     TurnID    `json:"turn"`
	Amount   Micros    `json:"amount_micros"`
	Unbilled Micros    `json:"unbilled_micros"`
	At       time.Time `json:"at"`   // to the microsecond
	Prev     Digest    `json:"prev"` // Hash of the entry before; zero for the first
	Hash     Digest    `json:"hash"` // see Sum
}

// Sum returns the hash that e must have: the SHA-256 of every other field.
func (e Entry) Sum() Digest {
	b := make([]byte, 0, 512)
	for _, s := range [...]string{string(e.Payer), string(e.Kind), e.Agent, string(e.Run), string(e.Turn)} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for _, n := range [...]int64{e.Seq, e.Call, int64(e.Attempt), int64(e.Amount), int64(e.Unbilled), e.At.UnixMicro()} {
		b = binary.AppendVarint(b, n)
	}
	b = append(append(b, e.Key[:]...), e.Prev[:]...)
	return sha256.Sum256(b)
}

// A Balance is what a payer's account comes to.
type Balance struct {
	Payer    Payer  `json:"payer"`
	Charged  Micros `json:"charged_micros"`  // the sum of its settled calls, exactly (G26)
	Unbilled Micros `json:"unbilled_micros"` // what nobody pays
	Held     Micros `json:"held_micros"`     // by calls in flight
	Calls    int64  `json:"calls"`           // settled
	Voids    int64  `json:"voids"`           // attempts that failed
	Replays  int64  `json:"replays"`         // duplicates answered from memory, amount 0
	Refusals int64  `json:"refusals"`        // repeats included, amount 0
}

// A LedgerVerdict is what a verification of the ledger found (G28).
type LedgerVerdict struct {
	Payers  int    `json:"payers"`
	Entries int64  `json:"entries"`
	Charged Micros `json:"charged_micros"`
	// Bad is the first entry that is not what it must be, and Fault what is
	// wrong with it; nil when all are.
	Bad   *Entry `json:"bad,omitempty"`
	Fault string `json:"fault,omitempty"`
}
