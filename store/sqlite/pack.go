package sqlite

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
)

// The lengths from which bodies are packed. A shorter one shares its page with
// others anyway; the parts of one stream lie side by side, so there it is less.
const (
	packBytes = 2 << 10
	packPart  = 512
)

// pack returns body as it is stored, packed from a length on. Streams repeat
// themselves in each event: to write a tenth of the pages takes less time than it
// takes to pack them.
func pack(body []byte, from int) (stored []byte, packed bool) {
	if len(body) < from {
		return body, false
	}
	room, _ := packing.Get().(*[]byte)
	defer packing.Put(room)
	if most := s2.MaxEncodedLen(len(body)); len(*room) < most && most <= maxPacking {
		*room = make([]byte, most)
	}
	if stored = s2.Encode(*room, body); len(stored) >= len(body) {
		return body, false
	}
	return bytes.Clone(stored), true
}

// packing is room to pack in, many times what is packed.
var packing = sync.Pool{New: func() any { return new([]byte) }}

// maxPacking is how much of it is kept at most.
const maxPacking = 64 << 10

// unpacked reads a body and whether it is packed.
func (r *row) unpacked() []byte {
	body := r.blob()
	if !r.bool() {
		return body
	}
	plain, err := s2.Decode(nil, body)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("unpack a stored answer: %w", err)
	}
	return plain
}
