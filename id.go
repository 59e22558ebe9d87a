package agentbus

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// The names that travel with a call. Each has its own type, so that a
// signature reads as a sentence and a run cannot be passed for a turn.
type (
	// RunID names the top-level run. It never changes on the way down.
	RunID string
	// TurnID names one call of a run: <run>.t<index>.<slug of the speaker>.
	TurnID string
	// Speaker is the name under which a participant speaks. It is a label:
	// nothing is decided by it.
	Speaker string
	// Payer is the principal that is billed for a call.
	Payer string
)

// maxID is the longest run, turn or parent id in bytes (P4).
const maxID = 512

// NewRunID returns a run id nobody has used: "run_" and a UUIDv7 (P4). It reads
// the clock and the system's random source; beside it only new spans do.
func NewRunID() RunID {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails since Go 1.24
	binary.BigEndian.PutUint64(u[:8], uint64(time.Now().UnixMilli())<<16|uint64(binary.BigEndian.Uint16(u[6:8])))
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	h := hex.EncodeToString(u[:])
	return RunID("run_" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}

// Turn returns the id of the index-th turn of r, spoken by s. It is a pure
// function, so a retry after a crash computes the same id (P16). Two turns of
// nested conversations of one run can have the same id (P17): never use it
// alone as a key; see [TurnKey].
func (r RunID) Turn(index int, s Speaker) TurnID {
	return TurnID(string(r) + ".t" + strconv.Itoa(index) + "." + s.Slug())
}

// MintTurn returns the id of a turn that its caller did not name (P7): that of
// [RunID.Turn], unless the run's id leaves too little room for it (P4); then one that
// nobody has used.
func (r RunID) MintTurn(index int, s Speaker) TurnID {
	if t := r.Turn(index, s); validID(string(t)) {
		return t
	}
	return NewRunID().Turn(index, s)
}

// Index returns the index that t was made with as a turn of r, or -1 when t is
// not of the form that [RunID.Turn] makes, or its index has more than 9 digits.
func (t TurnID) Index(r RunID) int {
	rest, ok := strings.CutPrefix(string(t), string(r)+".t")
	if !ok {
		return -1
	}
	digits, slug, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || slug == "" || len(digits) > 9 || len(digits) > 1 && digits[0] == '0' {
		return -1
	}
	return int(n)
}

// Valid reports whether r can be the id of a run (P4).
func (r RunID) Valid() bool { return validID(string(r)) }

// validID reports whether s is a run, turn or parent id (P4): 1 to 512 visible
// ASCII characters without comma and double quote.
func validID(s string) bool {
	if s == "" || len(s) > maxID {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c < 0x21 || c > 0x7e || c == ',' || c == '"' {
			return false
		}
	}
	return true
}
