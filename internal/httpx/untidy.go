package httpx

import (
	"path"
	"strings"
)

// Untidy reports whether a ServeMux would answer the path p with a redirect, which
// clients follow without what they had to say, or not at all.
func Untidy(p string) bool {
	return !strings.HasPrefix(p, "/") || p != "/" && path.Clean(p) != strings.TrimSuffix(p, "/")
}
