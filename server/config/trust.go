package config

import "github.com/agentbus/agentbus"

// Trust says who is believed beside those who call: issuers of evidence and other
// buses (C16, C23), and what this bus signs with.
type Trust struct {
	Issuer     string          `yaml:"issuer" pattern:"^(https?://[^?#@]+)?$" example:"https://bus.example.com" doc:"In whose name this bus signs, and where its keys are: a URL of its own. Empty: public_url."`
	KeyEnv     string          `yaml:"key_env" pattern:"^([A-Za-z_][A-Za-z0-9_]*)?$" doc:"Environment variable that holds the key it signs with: 64 hex digits, such as openssl rand -hex 32 prints. Its public half is at /.well-known/jwks.json and /.well-known/adapter-card."`
	KeyFile    string          `yaml:"key_file" doc:"File that holds the key: 32 bytes, or 64 hex digits."`
	KeyID      string          `yaml:"key_id" default:"key-1" pattern:"^[A-Za-z0-9._-]{1,64}$" doc:"Tells the key from those before it."`
	FormerKeys []FormerKey     `yaml:"former_keys" doc:"Those it signed with before: published beside its own, so that what they signed still counts, and trace verify can still prove it."`
	SignedHops bool            `yaml:"signed_hops" default:"false" doc:"Sign every hop of a chain of agents, and verify those that other buses have signed (C16). It needs a key."`
	Buses      []TrustedBus    `yaml:"buses" doc:"Other buses whose signed hops count."`
	Issuers    []TrustedIssuer `yaml:"issuers" doc:"Whose evidence of identity counts, and for what (C23)."`
	STS        STS             `yaml:"sts" doc:"A token service that makes evidence for the next agent (C25). Absent: this bus wraps it with its key; without one it ends here."`

	// Key is the 32 bytes of KeyEnv or KeyFile; none when neither is set.
	Key agentbus.Credential `yaml:"-"`
}

// A FormerKey is the public half of a key that this bus signed with before. It has the
// fields of identity's FormerKey and converts to it.
type FormerKey struct {
	KeyID string `yaml:"key_id" required:"true" example:"key-1" pattern:"^[A-Za-z0-9._-]{1,64}$" doc:"What it was told apart by; key_id is another one now."`
	X     string `yaml:"x" required:"true" example:"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" pattern:"^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$" doc:"Its public half: x in /.well-known/jwks.json."`
}

// A TrustedBus is another bus whose signed hops count (C16).
type TrustedBus struct {
	Issuer string `yaml:"issuer" required:"true" example:"https://bus.example.org" doc:"In whose name it signs; its keys are at that host."`
	Caller string `yaml:"caller" required:"true" example:"bus-org" doc:"The principal as which it calls here."`
}

// A TrustedIssuer is one whose evidence counts (C23). It has the fields of
// identity's TrustedIssuer and converts to it.
type TrustedIssuer struct {
	Issuer          string   `yaml:"issuer" required:"true" example:"https://slack.example.com" doc:"A URL, an address or a host; its keys are at https://HOST/.well-known/adapter-card."`
	Methods         []string `yaml:"methods" required:"true" example:"[urn:slack:signed]" doc:"Methods that it may use."`
	Assurance       []string `yaml:"assurance" required:"true" example:"[platform]" doc:"What it may claim of them, such as platform or domain."`
	SubjectPrefixes []string `yaml:"subject_prefixes" required:"true" example:"['slack:T123/']" pattern:"[/:@]$" doc:"How the subjects begin that it may speak of. Each ends in /, : or @."`
	MayDelegate     bool     `yaml:"may_delegate" default:"false" doc:"What it says of those for whom its subjects act counts too (C25)."`
}

// An STS is a token service (RFC 8693).
type STS struct {
	URL       string `yaml:"url" pattern:"^(https?://.*)?$" example:"https://id.example.com/token" doc:"Where it exchanges tokens. https, or http to this machine. Empty: there is none."`
	TokenEnv  string `yaml:"token_env" pattern:"^([A-Za-z_][A-Za-z0-9_]*)?$" doc:"Environment variable that holds what proves this bus to the service, as the actor."`
	TokenFile string `yaml:"token_file" doc:"File that holds it, on one line."`

	// Token is what TokenEnv or TokenFile holds.
	Token agentbus.Credential `yaml:"-"`
}

// An ACL says who may call an agent, by evidence (C24).
type ACL struct {
	Public    bool         `yaml:"public" default:"false" doc:"Everybody may, whatever allow says."`
	Principal ACLPrincipal `yaml:"principal" default:"nearest" enum:"nearest|root" doc:"Whom allow names: nearest (who makes the call) or root (for whom it is made in the end)."`
	Allow     []ACLEntry   `yaml:"allow" doc:"Who may, exactly; there are no wildcards. Empty: nobody."`
}

// An ACLPrincipal is whom an ACL names.
type ACLPrincipal string

// Whom it names.
const (
	ACLNearest ACLPrincipal = "nearest"
	ACLRoot    ACLPrincipal = "root"
)

// An ACLEntry is one subject of one issuer. It has the fields of
// [agentbus.ACLEntry] and converts to it.
type ACLEntry struct {
	Issuer  string `yaml:"issuer" default:"agentbus" doc:"Who says so: a trusted issuer, or agentbus for the principals of this bus."`
	Method  string `yaml:"method" default:"urn:agentbus:principal" doc:"By which method."`
	Subject string `yaml:"subject" required:"true" example:"user-123" doc:"The subject, as the issuer calls it."`
}
