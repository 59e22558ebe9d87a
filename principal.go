package agentbus

import "time"

// A PrincipalRole decides which listener it may use.
type PrincipalRole string

// The roles of a principal.
const (
	PrincipalUser  PrincipalRole = "user"  // may call agents
	PrincipalAdmin PrincipalRole = "admin" // may operate the bus as well
)

// A Principal is an authenticated party: a caller, or the payer a forwarded
// credential stands for.
type Principal struct {
	ID         string        `json:"id"`
	Role       PrincipalRole `json:"role"`
	InterAgent bool          `json:"inter_agent,omitempty"` // may forward another's credential (P20)
}

// An APIKey is a secret that authenticates a principal, as it is stored: its
// hash, never the secret (G4).
type APIKey struct {
	Handle    string    `json:"handle"` // the first characters of the secret, to tell keys apart
	Hash      Digest    `json:"-"`      // SHA-256 of the secret
	Principal Principal `json:"principal"`
	Created   time.Time `json:"created,omitzero"` // zero: of the configuration
	Revoked   time.Time `json:"revoked,omitzero"` // zero: in force
}
