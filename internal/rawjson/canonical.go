package rawjson

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/gowebpki/jcs"
)

// CanonicalHash is the SHA-256 of the canonical form of raw (RFC 8785), in hex; ""
// of what has none.
func CanonicalHash(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}
