package sqlite

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentbus/agentbus"
)

// row is one result, read column by column in the order of its SELECT. A NULL
// reads as the zero value. The first column that cannot be read leaves its
// error in err.
type row struct {
	values []any
	next   int
	err    error
}

func (r *row) value() any {
	v := r.values[r.next]
	r.next++
	return v
}

func (r *row) text() string { s, _ := r.value().(string); return s }
func (r *row) int64() int64 { n, _ := r.value().(int64); return n }
func (r *row) int() int     { return int(r.int64()) }
func (r *row) bool() bool   { return r.int64() != 0 }
func (r *row) blob() []byte { b, _ := r.value().([]byte); return b }

func (r *row) micros() agentbus.Micros { return agentbus.Micros(r.int64()) }

// epoch reads a lease's epoch.
func (r *row) epoch() uint64 { return uint64(r.int64()) } //nolint:gosec // written by signed

func (r *row) digest() (d agentbus.Digest) {
	copy(d[:], r.blob())
	return d
}

// time reads microseconds since 1970; NULL is the zero time.
func (r *row) time() time.Time {
	n, ok := r.value().(int64)
	if !ok {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// json decodes a column into dest; NULL leaves it as it is.
func (r *row) json(dest any) {
	s := r.text()
	if s == "" {
		return
	}
	if err := json.Unmarshal([]byte(s), dest); err != nil && r.err == nil {
		r.err = fmt.Errorf("column %d of the row: %w", r.next, err)
	}
}

// micros returns t as it is stored, to the microsecond; NULL for the zero time.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// stored returns t as it reads after it was stored.
func stored(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

// flag returns b as it is stored.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// signed returns an epoch as it is stored. Epochs count claims of a lease and
// never come near the sign.
func signed(epoch uint64) int64 { return int64(epoch) } //nolint:gosec // see above

// jsonText returns v as JSON text.
func jsonText(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return string(b), nil
}

// notesText returns notes as they are stored; NULL for none.
func notesText(notes []string) any {
	if len(notes) == 0 {
		return nil
	}
	b, _ := json.Marshal(notes) // strings always marshal
	return string(b)
}

// chainText returns a place in a chain of agents as it is stored; NULL for none.
func chainText(c *agentbus.AgentChain) any {
	if c == nil {
		return nil
	}
	b, _ := json.Marshal(c) // numbers always marshal
	return string(b)
}

// blob returns b as it is stored; NULL when it is empty.
func blob[B ~[]byte](b B) any {
	if len(b) == 0 {
		return nil
	}
	return []byte(b)
}
