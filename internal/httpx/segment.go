package httpx

import (
	"net/url"
	"strings"
)

// Segment returns name as one segment of a path. Clients and servers resolve the
// segments "." and "..", escaped ones too, so a comma is put before such a name;
// [Named] takes it off again.
func Segment(name string) string {
	if isDots(name) {
		name = "," + name
	}
	return url.PathEscape(name)
}

// Named returns the name that a segment stands for, once it is unescaped.
func Named(segment string) string {
	if name, ok := strings.CutPrefix(segment, ","); ok && isDots(name) {
		return name
	}
	return segment
}

// isDots reports whether name is . or .., behind any number of commas: those are
// names too.
func isDots(name string) bool {
	name = strings.TrimLeft(name, ",")
	return name == "." || name == ".."
}
