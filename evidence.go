package agentbus

import "time"

// Evidence says who somebody is, as an issuer that is trusted here has signed it
// or as this bus itself has found out (C21). Access is decided by it, and nothing
// else: it never moves a bill, which follows the credential (P19 to P24).
type Evidence struct {
	Issuer    string `json:"issuer"`
	Method    string `json:"method"`    // how the issuer knows, as a URN
	Assurance string `json:"assurance"` // how much that is worth, such as platform or domain
	Subject   string `json:"subject"`   // who acts now
	// OnBehalfOf are those for whom the subject acts, the nearest first and the
	// root last (C26); none: it acts for itself.
	OnBehalfOf []string `json:"on_behalf_of,omitempty"`
	// Digest is the SHA-256 of the signed original; zero for what this bus found
	// out itself.
	Digest Digest `json:"-"`
	// Original is the signed original, and Expires when it counts no longer: what
	// goes on to the next agent is made of it (C25).
	Original Credential `json:"-"`
	Expires  time.Time  `json:"-"`
}

// An EvidenceFor says for which agent and message evidence is made (C22).
type EvidenceFor struct {
	Audiences []string // under which the agent is known: addresses and URLs
	MessageID string
}

// Root returns for whom it all happens: the last of OnBehalfOf, or the subject.
func (e *Evidence) Root() string {
	if n := len(e.OnBehalfOf); n > 0 {
		return e.OnBehalfOf[n-1]
	}
	return e.Subject
}

// The issuer and the method of the evidence that a bus finds out itself: the
// principal that a credential stands for.
const (
	LocalIssuer = "agentbus"
	LocalMethod = "urn:agentbus:principal"
)

// LocalEvidence returns the evidence of a call whose caller and payer were
// authenticated here: the caller acts, for the payer when that is somebody else.
func LocalEvidence(caller string, payer Payer) Evidence {
	e := Evidence{Issuer: LocalIssuer, Method: LocalMethod, Assurance: "platform", Subject: caller}
	if string(payer) != caller && payer != "" {
		e.OnBehalfOf = []string{string(payer)}
	}
	return e
}

// An ACL says who may call an agent, by evidence (C24). The zero ACL lets nobody
// in.
type ACL struct {
	Public bool       // everybody may
	Allow  []ACLEntry // exact; there are no wildcards
	Root   bool       // entries name for whom a call is made; else they name who makes it
}

// An ACLEntry is one subject of one issuer.
type ACLEntry struct {
	Issuer  string
	Method  string
	Subject string
}

// Allows reports whether one of the evidence lets the call in.
func (a *ACL) Allows(evidence []Evidence) bool {
	if a.Public {
		return true
	}
	for i := range evidence {
		e := &evidence[i]
		who := e.Subject
		if a.Root {
			who = e.Root()
		}
		for _, entry := range a.Allow {
			if entry == (ACLEntry{e.Issuer, e.Method, who}) && who != "" {
				return true
			}
		}
	}
	return false
}
