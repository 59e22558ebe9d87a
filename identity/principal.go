package identity

import "strings"

// maxID is the longest id of a principal in bytes.
const maxID = 128

// ValidID reports whether id may name a principal: 1 to 128 letters, digits and
// . _ - : /
func ValidID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, r := range id {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-', r == ':', r == '/':
		default:
			return false
		}
	}
	return true
}

// Handle returns the handle of a secret of [NewKey], and anything else as it
// is, so that it can be written down.
func Handle(secret string) string {
	if strings.HasPrefix(secret, keyPrefix) && len(secret) > handleLength {
		return secret[:handleLength]
	}
	return secret
}
