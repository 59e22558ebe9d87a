package postgres

import (
	"fmt"

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
	if stored = s2.Encode(nil, body); len(stored) >= len(body) {
		return body, false
	}
	return stored, true
}

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
