package gateway

// A usageFinder finds the usage that a JSON object tells at its top, while the
// object passes in pieces. It keeps nothing else of it, and finds nothing in what
// is no JSON.
type usageFinder struct {
	depth   int
	quoted  bool   // inside a string
	escaped bool   // behind a backslash of one
	key     []byte // the last string at the top, as far as it can be the key
	named   bool   // the value that comes at the top is the usage
	value   []byte // the usage so far
	taking  bool
}

// maxUsage is how many bytes a usage may have.
const maxUsage = 16 << 10

// feed takes the next piece.
func (f *usageFinder) feed(b []byte) {
	for _, c := range b {
		if f.taking && len(f.value) < maxUsage {
			f.value = append(f.value, c)
		}
		if f.quoted {
			f.inString(c)
		} else {
			f.outside(c)
		}
	}
}

func (f *usageFinder) inString(c byte) {
	switch {
	case f.escaped:
		f.escaped = false
	case c == '\\':
		f.escaped = true
	case c == '"':
		f.quoted = false
	}
	if f.depth == 1 && len(f.key) < len(usageKey) {
		f.key = append(f.key, c)
	}
}

func (f *usageFinder) outside(c byte) {
	switch c {
	case '"':
		f.quoted, f.key = true, append(f.key[:0], c)
	case ':':
		f.named = f.depth == 1 && string(f.key) == string(usageKey)
	case ',':
		f.named = f.named && f.depth > 1
	case '{', '[':
		if f.depth++; f.named && f.depth == 2 && c == '{' {
			f.value, f.taking = append(f.value[:0], c), true
		}
	case '}', ']':
		if f.depth--; f.depth == 1 {
			f.named, f.taking = false, false
		}
	}
}

// usage returns the usage that was told, if one was.
func (f *usageFinder) usage() reported {
	if f.taking || len(f.value) == maxUsage {
		return reported{}
	}
	return parseUsage([]byte(`{"usage":` + string(f.value) + `}`))
}
