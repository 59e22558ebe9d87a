package config

import (
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// Auth says how callers prove who they are, beside the keys above (G4).
type Auth struct {
	Order         []AuthMethod   `yaml:"order" enum:"keys|jwt|introspection|mtls" doc:"Who is asked, from the first to the last, until one knows the caller or knows its credential as bad. Empty: keys, jwt, introspection, mtls, those that are configured."`
	JWT           []JWT          `yaml:"jwt" doc:"Issuers whose signed tokens are accepted: OpenID Connect, or any that publishes its keys."`
	Introspection *Introspection `yaml:"introspection" doc:"Opaque tokens whose issuer is asked about them (RFC 7662)."`
	MTLS          *MTLS          `yaml:"mtls" doc:"Callers that are known by the client certificate of their connection. It needs tls.client_ca_file."`
}

// An AuthMethod is a kind of credential (G4).
type AuthMethod string

// The kinds of credentials.
const (
	AuthKeys          AuthMethod = "keys"          // API keys of the configuration and the store
	AuthJWT           AuthMethod = "jwt"           // signed tokens
	AuthIntrospection AuthMethod = "introspection" // opaque tokens
	AuthMTLS          AuthMethod = "mtls"          // client certificates
)

var authMethods = []AuthMethod{AuthKeys, AuthJWT, AuthIntrospection, AuthMTLS}

// Methods returns who is asked, in order.
func (a Auth) Methods() []AuthMethod {
	if len(a.Order) > 0 {
		return a.Order
	}
	var methods []AuthMethod
	for _, m := range authMethods {
		if a.has(m) {
			methods = append(methods, m)
		}
	}
	return methods
}

// has reports whether there is anybody to ask about m. Keys can always be made.
func (a Auth) has(m AuthMethod) bool {
	switch m {
	case AuthJWT:
		return len(a.JWT) > 0
	case AuthIntrospection:
		return a.Introspection != nil
	case AuthMTLS:
		return a.MTLS != nil
	case AuthKeys:
	}
	return true
}

// A JWT is an issuer of signed tokens.
type JWT struct {
	Name         string        `yaml:"name" pattern:"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$" doc:"What its principals are called here: NAME:SUBJECT. Empty: the host of issuer."`
	Issuer       string        `yaml:"issuer" required:"true" example:"https://id.example.com" pattern:"^https?://" doc:"What its tokens say in iss, to the byte. https, or http to this machine."`
	Audience     string        `yaml:"audience" required:"true" example:"agentbus" doc:"What its tokens must name in aud."`
	JWKSURL      string        `yaml:"jwks_url" pattern:"^(https?://.*)?$" doc:"Where its keys are. Empty: its /.well-known/openid-configuration tells."`
	Algorithms   []string      `yaml:"algorithms" enum:"RS256|RS384|RS512|PS256|PS384|PS512|ES256|ES384|ES512|EdDSA" doc:"Signatures that are accepted. Empty: RS256, ES256 and EdDSA."`
	SubjectClaim string        `yaml:"subject_claim" default:"sub" doc:"Claim that names the principal."`
	RoleClaim    string        `yaml:"role_claim" doc:"Claim, a text or a list, that makes an admin when it holds admin_value. Empty: none does."`
	AdminValue   string        `yaml:"admin_value" default:"admin" doc:"What role_claim holds for an admin."`
	InterAgent   []string      `yaml:"inter_agent" doc:"Subjects that may forward another's credential (P20)."`
	Admins       []string      `yaml:"admins" doc:"Subjects that may operate the bus as well."`
	Leeway       time.Duration `yaml:"leeway" default:"30s" min:"1s" max:"5m" doc:"How much the clocks may differ."`
}

// An Introspection is an endpoint that knows opaque tokens.
type Introspection struct {
	Name             string        `yaml:"name" default:"introspection" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$" doc:"What its principals are called here: NAME:SUBJECT."`
	URL              string        `yaml:"url" required:"true" example:"https://id.example.com/introspect" pattern:"^https?://" doc:"The endpoint. https, or http to this machine."`
	ClientID         string        `yaml:"client_id" required:"true" example:"agentbus" doc:"Who the bus is to the endpoint."`
	ClientSecretEnv  string        `yaml:"client_secret_env" pattern:"^[A-Za-z_][A-Za-z0-9_]*$" doc:"Environment variable that holds the secret of client_id."`
	ClientSecretFile string        `yaml:"client_secret_file" doc:"File that holds the secret of client_id, on one line."`
	Prefixes         []string      `yaml:"prefixes" example:"[x402_, ag_]" pattern:"^[!-~]+$" doc:"How the tokens begin that the endpoint is asked about. It is shown no other. Empty: it is asked about every token that nobody before it in auth.order knows."`
	Audience         string        `yaml:"audience" doc:"What the endpoint must name in aud. Empty: anything."`
	SubjectClaim     string        `yaml:"subject_claim" doc:"Member of the answer that names the principal, who pays. Empty: sub, else username."`
	RoleClaim        string        `yaml:"role_claim" doc:"Member, a text or a list, that makes an admin when it holds admin_value. Empty: none does."`
	AdminValue       string        `yaml:"admin_value" default:"admin" doc:"What role_claim holds for an admin."`
	InterAgent       []string      `yaml:"inter_agent" doc:"Subjects that may forward another's credential (P20)."`
	Admins           []string      `yaml:"admins" doc:"Subjects that may operate the bus as well."`
	TTL              time.Duration `yaml:"ttl" default:"30s" min:"1ms" max:"1h" doc:"How long an active token is not asked about again; less when it ends before."`
	Cache            int           `yaml:"cache" default:"10000" min:"1" max:"10000000" doc:"Tokens that are remembered, by their hashes."`
	Timeout          time.Duration `yaml:"timeout" default:"5s" min:"1ms" max:"1m" doc:"Time to answer. A caller whose token cannot be judged is answered 503, never let in."`

	ClientSecret agentbus.Credential `yaml:"-"` // from ClientSecretEnv or ClientSecretFile
}

// MTLS says who a client certificate stands for.
type MTLS struct {
	Name       string           `yaml:"name" default:"mtls" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$" doc:"What its principals are called here: NAME:SUBJECT."`
	Subject    CertificateField `yaml:"subject" default:"common_name" enum:"common_name|dns|uri" doc:"What in a certificate is the subject: common_name, or the subjectAltName of type dns or uri. It must stand there once."`
	InterAgent []string         `yaml:"inter_agent" doc:"Subjects that may forward another's credential (P20)."`
	Admins     []string         `yaml:"admins" doc:"Subjects that may operate the bus as well."`
}

// A CertificateField is where a certificate names its subject.
type CertificateField string

// TLS is what the public surface is served with.
type TLS struct {
	CertFile     string `yaml:"cert_file" required:"true" example:"/etc/agentbus/tls.crt" doc:"File of the certificate and those that vouch for it, in PEM."`
	KeyFile      string `yaml:"key_file" required:"true" example:"/etc/agentbus/tls.key" doc:"File of its private key, in PEM, readable by this user only."`
	ClientCAFile string `yaml:"client_ca_file" example:"/etc/agentbus/clients.crt" doc:"File of the authorities that vouch for client certificates, in PEM. A certificate of another is refused; none is fine. Empty: nobody is asked for one."`

	// Cert, Key and ClientCA are what the files hold.
	Cert     string              `yaml:"-"`
	Key      agentbus.Credential `yaml:"-"`
	ClientCA string              `yaml:"-"`
}

// A Rate bounds how often a caller may call (G8).
type Rate struct {
	PerSecond float64 `yaml:"per_second" default:"0" doc:"Calls a second, on average; 0: any number."`
	Burst     int     `yaml:"burst" default:"0" min:"0" max:"1000000" doc:"Calls at once beyond the average; 0: per_second, rounded up."`
}

// Principal returns whom the key stands for.
func (k Key) Principal() agentbus.Principal {
	p := agentbus.Principal{ID: k.ID, Role: k.Role, InterAgent: k.InterAgent}
	if k.Agents != nil || k.NoRunIDs || k.Rate != nil {
		p.Grants = &agentbus.Grants{Agents: k.Agents, NoRunIDs: k.NoRunIDs}
		if k.Rate != nil {
			p.Grants.PerSecond, p.Grants.Burst = k.Rate.PerSecond, k.Rate.Burst
		}
	}
	return p
}

// ReservedPrefix returns the beginning of id that belongs to an issuer of auth,
// such as "id.example.com:", or "" when a key may stand for id.
func (c *Config) ReservedPrefix(id string) string {
	names := []string{}
	for _, j := range c.Auth.JWT {
		names = append(names, j.Name)
	}
	if c.Auth.Introspection != nil {
		names = append(names, c.Auth.Introspection.Name)
	}
	if c.Auth.MTLS != nil {
		names = append(names, c.Auth.MTLS.Name)
	}
	for _, name := range names {
		if name != "" && strings.HasPrefix(id, name+":") {
			return name + ":"
		}
	}
	return ""
}
