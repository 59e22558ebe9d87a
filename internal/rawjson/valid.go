package rawjson

import "bytes"

// maxDepth is how deep values stand in each other at most, as encoding/json has it.
const maxDepth = 10_000

// Valid reports whether b is one value of JSON: what encoding/json takes for one,
// found in a fraction of the time. Every request and every answer is looked at so.
func Valid(b []byte) bool {
	over := valid(b, Space(b, 0), 0)
	return over >= 0 && Space(b, over) == len(b)
}

// valid returns where the value ends that begins at b[i]; -1: none does.
func valid(b []byte, i, depth int) int {
	if i == len(b) {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		return validString(b, i)
	case c == '{' || c == '[':
		return validContainer(b, i, depth+1)
	case c == '-' || isDigit(c):
		return validNumber(b, i)
	}
	for _, literal := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(b[i:], []byte(literal)) {
			return i + len(literal)
		}
	}
	return -1
}

// validContainer is valid for an object or a list.
func validContainer(b []byte, i, depth int) int {
	if depth > maxDepth {
		return -1
	}
	object, end := b[i] == '{', b[i]+2 // } and ] stand two behind { and [
	if i = Space(b, i+1); i < len(b) && b[i] == end {
		return i + 1
	}
	for {
		if object {
			if i == len(b) || b[i] != '"' {
				return -1
			}
			if i = validString(b, i); i < 0 {
				return -1
			}
			if i = Space(b, i); i == len(b) || b[i] != ':' {
				return -1
			}
			i = Space(b, i+1)
		}
		if i = valid(b, i, depth); i < 0 {
			return -1
		}
		if i = Space(b, i); i == len(b) {
			return -1
		}
		switch b[i] {
		case end:
			return i + 1
		case ',':
			i = Space(b, i+1)
		default:
			return -1
		}
	}
}

// validString is valid for a string. Like encoding/json it takes any bytes above
// the control characters for text.
func validString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			if i = validEscape(b, i+1); i < 0 {
				return -1
			}
		}
	}
	return -1
}

// validEscape returns where the last byte stands of what is escaped from b[i] on.
func validEscape(b []byte, i int) int {
	if i == len(b) {
		return -1
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i
	case 'u':
		for range 4 {
			if i++; i == len(b) || !isHex(b[i]) {
				return -1
			}
		}
		return i
	}
	return -1
}

// validNumber is valid for a number.
func validNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	from := i
	if i = digits(b, i); i == from || b[from] == '0' && i > from+1 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		from = i + 1
		if i = digits(b, from); i == from {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		from = i
		if i = digits(b, from); i == from {
			return -1
		}
	}
	return i
}

// digits returns where the digits end that begin at b[i].
func digits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
