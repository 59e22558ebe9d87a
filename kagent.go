package agentbus

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"strings"
)

// The headers of a conversation's lineage, under the names that agents outside
// know them by (K1), and those that tell a kagent agent on whose behalf it is
// called, and by what (K7).
const (
	ParentContextIDHeader = "x-kagent-parent-context-id"
	RootContextIDHeader   = "x-kagent-root-context-id"
	HeaderUserID          = "x-user-id"
	HeaderKagentSource    = "x-kagent-source"
	// KagentSource is what x-kagent-source says of the calls of a runtime.
	KagentSource = "agent"
)

// SessionID returns the id under which a session is told to others: s as it is
// when it can be a context id (K5), else "h." and 32 hex digits of its SHA-256.
// "" stays "".
func SessionID(s string) string {
	if s == "" || validContext(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "h." + hex.EncodeToString(sum[:16])
}

func validContext(s string) bool { return len(s) <= maxContextID && validID(s) }

// Contexts returns the parent and root context of the calls that a session of
// ours makes while it serves l (K2): the parent is the session, the root the one
// that came with l. Without one it is the parent that came, when legacy is set,
// else the session. Without a session there is neither.
func (l Lineage) Contexts(session string, legacy bool) (parent, root string) {
	if session = SessionID(session); session == "" {
		return "", ""
	}
	switch {
	case l.RootContext != "":
		return session, l.RootContext
	case legacy && l.ParentContext != "":
		return session, l.ParentContext
	}
	return session, session
}

// Session returns the session of who serves l and knows of no conversation of its
// own, such as a program: the root context that came, else the run (K3).
func (l Lineage) Session() string {
	if l.RootContext != "" {
		return l.RootContext
	}
	return string(l.Run)
}

// Keyed is the HMAC-SHA-256 under the install key of words, each behind its
// length, so that no two lists of them run together: how what belongs to a
// conversation is found, its worker, its memory, its URL (K10). Who does not have
// the key cannot say which words come to the same.
func Keyed(installKey []byte, words ...string) (d Digest) {
	m := hmac.New(sha256.New, installKey)
	for _, s := range words {
		m.Write(binary.AppendUvarint(nil, uint64(len(s))))
		m.Write([]byte(s))
	}
	m.Sum(d[:0])
	return d
}

// Layer sets the headers of extra in h, each in place of what h has: how the
// headers of a configuration, and then those of a program, are laid over the
// lineage (K6). Those of the protocol cannot be replaced, but for the two of a
// conversation's lineage; it returns the names that were left out.
func Layer(h, extra http.Header) (dropped []string) {
	for name, values := range extra {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case len(values) == 0:
		case isContextHeader(name) && len(values) == 1:
			h[canonical] = []string{values[0]}
		case IsProtocolHeader(name), strings.HasPrefix(strings.ToLower(strings.ReplaceAll(name, "_", "-")), "x-tangle-"):
			dropped = append(dropped, name)
		default:
			h[canonical] = append([]string(nil), values...)
		}
	}
	return dropped
}

// isContextHeader reports whether name, in any case, is one of the two headers
// of a conversation's lineage (K1).
func isContextHeader(name string) bool {
	return strings.EqualFold(name, RootContextIDHeader) || strings.EqualFold(name, ParentContextIDHeader)
}
