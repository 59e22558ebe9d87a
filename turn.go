package agentbus

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// A Digest is the SHA-256 of what was asked. The same turn with another digest
// is another request (G20).
type Digest [sha256.Size]byte

// String returns the first 16 hex digits, for people.
func (d Digest) String() string { return hex.EncodeToString(d[:8]) }

// MarshalText returns all 64 hex digits, for JSON and other encodings.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText sets d from the 64 hex digits of MarshalText.
func (d *Digest) UnmarshalText(text []byte) error {
	var got Digest
	if len(text) != hex.EncodedLen(len(got)) {
		return fmt.Errorf("a digest has %d hex digits, this one %d", hex.EncodedLen(len(got)), len(text))
	}
	if _, err := hex.Decode(got[:], text); err != nil {
		return fmt.Errorf("read a digest: %w", err)
	}
	*d = got
	return nil
}

// A TurnKey is what makes two calls the same turn (G20). Run and turn id alone
// do not: a nested run shares the run id and restarts its index (P17).
type TurnKey struct {
	Payer  Payer  `json:"payer,omitempty"`
	Agent  string `json:"agent"`
	Run    RunID  `json:"run"`
	Path   string `json:"path,omitempty"`
	Parent TurnID `json:"parent,omitempty"`
	ID     TurnID `json:"turn,omitempty"`
}

// Hash returns the key as 32 bytes: the SHA-256 of its fields, each behind its
// length, so that no two keys run together. What else belongs to the key, such
// as an Idempotency-Key in place of a turn id, is given as more.
func (k TurnKey) Hash(more ...string) Digest {
	var b [512]byte
	buf := b[:0]
	for _, s := range [...]string{string(k.Payer), k.Agent, string(k.Run), k.Path, string(k.Parent), string(k.ID)} {
		buf = append(binary.AppendUvarint(buf, uint64(len(s))), s...)
	}
	for _, s := range more {
		buf = append(binary.AppendUvarint(buf, uint64(len(s))), s...)
	}
	return sha256.Sum256(buf)
}

// PathBelow returns the path of the turns that are made while this one is
// served (P8): 16 hex digits of the SHA-256 of path, parent and turn; "" when
// there is no turn.
func (k TurnKey) PathBelow() string {
	if k.ID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(k.Path + string(k.Parent) + string(k.ID)))
	return hex.EncodeToString(sum[:8])
}

// A TurnState says how far a turn has come in its journal.
type TurnState string

// The states of a turn. A pending turn found after a crash is called again
// under the same id; done never changes.
//
//	(new) ─Begin─▶ pending ─Finish─▶ done
//	                  ├─────Finish─▶ failed ─Begin─▶ pending
//	                  ├──────Halt──▶ waiting ─Begin─▶ pending
//	                  └─────Finish─▶ cancelled
const (
	TurnPending   TurnState = "pending"
	TurnDone      TurnState = "done"
	TurnFailed    TurnState = "failed"
	TurnCancelled TurnState = "cancelled" // the join of its fan-out was met without it (R20); no error
	TurnWaiting   TurnState = "waiting"   // who was called asked for something, which an interrupt waits for (R22)
)

// A Turn is one call of a conversation as its driver's journal knows it: the
// intent before the call, the result after it (R14).
type Turn struct {
	TurnKey
	Execution ExecutionID `json:"execution"`
	Index     int         `json:"index"` // dense within the execution, from its First
	Speaker   Speaker     `json:"speaker"`
	Digest    Digest      `json:"-"`
	Epoch     uint64      `json:"epoch"` // of the lease under which it was written (R17)
	State     TurnState   `json:"state"`
	Reply     Reply       `json:"reply"`
	Cost      Micros      `json:"cost_micros"`     // failed attempts included (R8)
	Attempts  int         `json:"attempts"`        // tries so far: retries, and those of drivers that crashed or resumed
	Error     *Error      `json:"error,omitempty"` // of a failed turn; of a waiting one, and until it has another result, with the Ask
	Began     time.Time   `json:"began"`
	Ended     time.Time   `json:"ended,omitzero"`
	// Interrupt is what a waiting turn raises: given to the store with the turn,
	// never read with it. nil: somebody below has raised one.
	Interrupt *Interrupt `json:"-"`
	// Withdraw are the interrupts that nobody needs once the turn is cancelled:
	// given to the store with it, never read.
	Withdraw []InterruptID `json:"-"`
}
