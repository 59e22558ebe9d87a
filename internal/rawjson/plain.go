package rawjson

import "strconv"

// A Plain is JSON in the making: objects of texts that need no escapes, whole
// numbers and truth values, which lines of the log and bodies of errors nearly
// always are. It writes them as encoding/json does, without reflection and without
// memory of its own. Anything else makes it odd: then what it wrote is of no use,
// and encoding/json has to write it.
type Plain struct {
	out []byte
	odd bool
}

// NewPlain begins an object behind b.
func NewPlain(b []byte) Plain { return Plain{out: append(b, '{')} }

// Bytes returns what was written, and whether all of it was plain.
func (p *Plain) Bytes() (b []byte, plain bool) { return p.out, !p.odd }

// Open begins an object within the object.
func (p *Plain) Open(key string) {
	p.key(key)
	p.out = append(p.out, '{')
}

// Close ends the object that was begun last.
func (p *Plain) Close() { p.out = append(p.out, '}') }

// Text adds a text.
func (p *Plain) Text(key, value string) {
	p.key(key)
	p.text(value)
}

// Optional adds a text unless it is empty.
func (p *Plain) Optional(key, value string) {
	if value != "" {
		p.Text(key, value)
	}
}

// Int adds a whole number.
func (p *Plain) Int(key string, n int64) {
	p.key(key)
	p.out = strconv.AppendInt(p.out, n, 10)
}

// Bool adds a truth value.
func (p *Plain) Bool(key string, v bool) {
	p.key(key)
	p.out = strconv.AppendBool(p.out, v)
}

// Null adds a null.
func (p *Plain) Null(key string) {
	p.key(key)
	p.out = append(p.out, "null"...)
}

// Any adds a text or a whole number; anything else is odd.
func (p *Plain) Any(key string, v any) {
	switch v := v.(type) {
	case string:
		p.Text(key, v)
	case int:
		p.Int(key, int64(v))
	case int64:
		p.Int(key, v)
	default:
		p.Odd()
	}
}

// Odd says that there is something to be written that is not plain.
func (p *Plain) Odd() { p.odd = true }

func (p *Plain) key(key string) {
	if p.out[len(p.out)-1] != '{' {
		p.out = append(p.out, ',')
	}
	p.text(key)
	p.out = append(p.out, ':')
}

func (p *Plain) text(s string) {
	p.odd = p.odd || !isPlain(s)
	p.out = append(append(append(p.out, '"'), s...), '"')
}

// isPlain reports whether s stands in JSON as it is, whoever writes it: some escape
// what HTML would read.
func isPlain(s string) bool {
	for i := range len(s) {
		if !asItIs[s[i]] {
			return false
		}
	}
	return true
}

// asItIs are the bytes that are written as they are.
var asItIs = func() (t [256]bool) {
	for c := ' '; c <= '~'; c++ {
		t[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return t
}()
