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
	Grants     *Grants       `json:"grants,omitempty"`      // nil: it may call every agent as it likes
}

// Grants bound what a caller may do (G6).
type Grants struct {
	Agents    []string `json:"agents"`               // the only agents it may call, by name; nil: every agent, empty: none
	NoRunIDs  bool     `json:"no_run_ids,omitempty"` // it may not name runs: each of its calls is a run of its own
	PerSecond float64  `json:"per_second,omitempty"` // calls a second, on average; 0: any number (G8)
	Burst     int      `json:"burst,omitempty"`      // calls at once beyond the average; 0: PerSecond, rounded up
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
