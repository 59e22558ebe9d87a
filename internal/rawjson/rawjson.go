// Package rawjson finds its way in JSON text that is known to be valid, without
// decoding it: what is only looked at or replaced leaves every other byte as it
// came.
package rawjson

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
)

// Space returns where the first byte at or behind i stands that is no white
// space; len(b) when there is none.
func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// Value returns where the value that begins at b[i] ends. It reads no deeper
// than it needs to, so that depth costs nothing.
func Value(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = endOfString(b, i); depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i // the scalar before it ends with its container
			}
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// endOfString returns where the string that begins at b[i] has its last quote.
func endOfString(b []byte, i int) int {
	for i++; ; {
		quote := i + bytes.IndexByte(b[i:], '"')
		for i <= quote {
			escape := bytes.IndexByte(b[i:quote], '\\')
			if escape < 0 {
				return quote
			}
			i += escape + 2 // past what is escaped, which may be the quote
		}
	}
}

// Text returns the string that a quoted string of JSON stands for.
func Text(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // a string of valid JSON
	return s
}

// AppendText appends the quoted string of JSON that stands for s, as
// encoding/json writes it.
func AppendText(b []byte, s string) []byte {
	if !isPlain(s) {
		quoted, _ := json.Marshal(s) // a string
		return append(b, quoted...)
	}
	return append(append(append(b, '"'), s...), '"')
}

// HeaderText returns a header as a JSON object, as encoding/json writes it.
func HeaderText(h http.Header) string {
	if h == nil {
		return "null"
	}
	var room [16]string
	names := room[:0]
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	b := append(make([]byte, 0, 256), '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTexts(append(AppendText(b, name), ':'), h[name])
	}
	return string(append(b, '}'))
}

// appendTexts appends a list of texts.
func appendTexts(b []byte, texts []string) []byte {
	if texts == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendText(b, text)
	}
	return append(b, ']')
}

// A Member is one member of an object, as places in the text.
type Member struct {
	Key      []byte // without quotes, escapes undone
	From     int    // of the key, its quote included
	At, Over int    // of the value: [At, Over)
}

// Members calls use with each member of the object that begins at b[at], in its
// order, until use returns false. It returns where the object ends, or where it
// stopped.
func Members(b []byte, at int, use func(Member) bool) (end int) {
	i := Space(b, at+1)
	for b[i] != '}' {
		keyEnd := Value(b, i)
		m := Member{From: i, Key: b[i+1 : keyEnd-1]}
		if bytes.IndexByte(m.Key, '\\') >= 0 {
			m.Key = []byte(Text(b[i:keyEnd]))
		}
		m.At = Space(b, Space(b, keyEnd)+1) // behind the colon
		m.Over = Value(b, m.At)
		if !use(m) {
			return m.Over
		}
		if i = Space(b, m.Over); b[i] == ',' {
			i = Space(b, i+1)
		}
	}
	return i + 1
}

// Elements calls use with where each element of the list that begins at b[at]
// stands, [from, over), in its order, until use returns false.
func Elements(b []byte, at int, use func(from, over int) bool) {
	for i := Space(b, at+1); b[i] != ']'; {
		over := Value(b, i)
		if !use(i, over) {
			return
		}
		if i = Space(b, over); b[i] == ',' {
			i = Space(b, i+1)
		}
	}
}
