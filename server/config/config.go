// Package config reads the configuration of a bus: agentbus.yaml, what the
// environment says over it, and what the command line says over both.
//
// The structs of this file are the one source of truth. Their tags name each
// key, its default, its bounds and what it is for; the loader ([Load]), the
// JSON Schema ([Schema]), the explanation ([Explain]) and the commented file
// that agentbus init writes ([Example]) are all read from them by reflection.
//
// [Load] reports every fault of a file at once, each with its place. A secret is
// never in a Config as text: it is an [agentbus.Credential], so a Config can be
// printed.
package config

import (
	"time"

	"github.com/agentbus/agentbus"
)

// Tags of the fields below:
//
//	yaml      the key; "-" for what the loader computes
//	default   as it would be written in the file; absent: the zero value, which doc explains
//	doc       what the key is for, in one or two sentences
//	env       the environment variable that overrides it
//	enum      the values it may have, separated by |
//	min, max  bounds, both included
//	required  "true": there is no default
//	or        the key that may stand in its place; exactly one of the two does
//	pattern   the form of a text, for the schema and the loader, which says more where it checks more
//	keys      the form of the keys of a table, likewise
//	for       the kinds of agent it belongs to, separated by |
//	example   what the commented file shows for it when there is no default
//	restart   "true": a change of it waits for a restart (G30)
//	instead   of a key that is not acted on: what holds in its place, and what to do
//
// A blank field of type later is a key of the specification that this version
// reads and does not act on.

// later is the type of a key that is accepted, whatever it holds, and answered
// with a [Warning].
type later struct{}

// A Config is a checked configuration. It comes from [Load], is not changed
// afterwards and may then be shared.
type Config struct {
	Listen         string                  `yaml:"listen" restart:"true" default:"127.0.0.1:8080" env:"AGENTBUS_LISTEN" doc:"Address of the public surface, host:port. Without tls, keep it on loopback or behind a proxy that has."`
	Admin          Admin                   `yaml:"admin" doc:"Listener of the console, the admin API and the metrics, apart from the public one. Only admins may use it: keys with role admin, and the token."`
	PublicURL      string                  `yaml:"public_url" pattern:"^([Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+(/[^?#]*)?)?$" env:"AGENTBUS_PUBLIC_URL" example:"https://bus.example.com" doc:"What cards and links name. Empty: taken from the request; for an agent with an address, https and the domain of that."`
	TLS            *TLS                    `yaml:"tls" restart:"true" doc:"The public surface over TLS, with HTTP/1.1. Absent: plain HTTP."`
	Keys           []Key                   `yaml:"keys" doc:"Who may call: static principals. More are made by agentbus keys create, which needs no secret here."`
	Auth           Auth                    `yaml:"auth" doc:"Who may call beside keys, and who is asked first (G4)."`
	Agents         map[string]Agent        `yaml:"agents" keys:"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$" doc:"The agents of this bus by name. A caller reaches one as model NAME, agent/NAME, bridge/KIND/NAME or an alias (G1)."`
	Conversations  map[string]Conversation `yaml:"conversations" keys:"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$" doc:"Conversations by name; an agent of kind conversation makes one callable."`
	Workers        Workers                 `yaml:"workers" doc:"Runs that go on without who began them (R19)."`
	Interrupts     Interrupts              `yaml:"interrupts" doc:"What runs wait for: approvals, payments, answers (R22)."`
	Sealing        Sealing                 `yaml:"sealing" doc:"Credentials of runs, stored encrypted until the run is over, so that it can go on without who began it (R18). Absent: they are not stored, and a run that is taken up without them waits for them."`
	Budgets        []Budget                `yaml:"budgets" doc:"What calls may come to, per payer, caller, run and period (G27). Absent: any amount."`
	Store          Store                   `yaml:"store" doc:"Where runs, turns and charges are kept."`
	Limits         Limits                  `yaml:"limits" doc:"What is refused before any work is done (G3, P10)."`
	Forwarding     Forwarding              `yaml:"forwarding" doc:"Credentials that a caller forwards for somebody else (P20)."`
	Retention      Retention               `yaml:"retention" doc:"How long what was said is kept. Keys, digests and amounts stay (G25)."`
	Recording      Recording               `yaml:"recording" doc:"What calls are asked and answered, for operators to read (U11)."`
	Detach         Detach                  `yaml:"detach" doc:"Calls that go on in the background after their caller left, so that its retry finds the answer (G14)."`
	Ledger         Ledger                  `yaml:"ledger" doc:"Once per turn, charged once."`
	Chain          Chain                   `yaml:"chain" doc:"Calls that agents make while they answer one."`
	Resolver       Resolver                `yaml:"resolver" doc:"Agents of other organisations, by address (C33, C35)."`
	A2A            A2A                     `yaml:"a2a" doc:"The A2A surface (A3)."`
	TrustedProxies []string                `yaml:"trusted_proxies" pattern:"^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$" example:"[10.0.0.0/8]" doc:"Networks whose X-Forwarded-Proto and X-Forwarded-Host say under which URL the bus was asked, where public_url is empty. Absent: nobody is believed (A10)."`
	Lineage        Lineage                 `yaml:"lineage" doc:"Which conversation a call belongs to."`
	Trust          Trust                   `yaml:"trust" doc:"Who is believed beside those who call (C16, C23), and what this bus signs with."`
	DrainTimeout   time.Duration           `yaml:"drain_timeout" default:"30s" env:"AGENTBUS_DRAIN_TIMEOUT" doc:"How long live calls may go on after SIGTERM (G31)."`
	Telemetry      Telemetry               `yaml:"telemetry" doc:"What is told to the world outside (G33, G34)."`
	StrictHTTP     bool                    `yaml:"strict_http" restart:"true" default:"true" env:"AGENTBUS_STRICT_HTTP" doc:"Refuse ambiguous HTTP at the socket: two body lengths, folded headers, bare line feeds (G36)."`
	InstallKeyFile string                  `yaml:"install_key_file" restart:"true" env:"AGENTBUS_INSTALL_KEY_FILE" example:"/etc/agentbus/install.key" doc:"File of the install key: 32 bytes, or 64 hex digits. Workers, sessions and URLs of conversations are chosen under it, and tokens of interrupts made (P19, K10). Empty: the key that was made with the store."`
	InstallKey     agentbus.Credential     `yaml:"-"` // the 32 bytes of InstallKeyFile; none when it is empty

	Tools      Tools      `yaml:"tools" doc:"Which tools agents may call (E27)."`
	Escalation Escalation `yaml:"escalation" default:"on" enum:"on|off" env:"AGENTBUS_ESCALATION" doc:"A decision of low confidence waits for somebody to ratify it (on), or stands, and an event tells so (off) (E30, E33)."`

	// Path is the file that was read; "" when there was none and all values
	// are defaults or from the environment.
	Path string `yaml:"-"`

	origins map[string]Origin // by key path, of every value that is not a default
}

// Tools says which tools agents may call. The bus runs none: a call that is not
// allowed is told as forbidden (E27).
type Tools struct {
	Default []string `yaml:"default" pattern:"^[a-z0-9_-]+:.+$" example:"[writer:search]" doc:"Those of agents without a list of their own, as SCOPE:NAME, where SCOPE is openwop, mcp or the agent's slug in the conversation. Empty: none."`
}

// Escalation is what becomes of decisions of low confidence.
type Escalation string

// What becomes of them.
const (
	EscalationOn  Escalation = "on"
	EscalationOff Escalation = "off"
)

// Workers says how runs are driven that nobody watches, and for how long a
// driver may be silent.
type Workers struct {
	Max   int           `yaml:"max" restart:"true" default:"1000" min:"0" max:"1000000" doc:"How many runs agentbus serve drives at once: those that a dead process left, and those of agentbus run --detach. 0: none, it serves only."`
	Lease time.Duration `yaml:"lease" default:"30s" min:"100ms" max:"1h" doc:"How long a driver keeps a run without renewing its lease, which it does every third of it (R17). A driver whose process has ended loses it at once."`
}

// Interrupts bounds what runs wait for.
type Interrupts struct {
	Timeout time.Duration `yaml:"timeout" default:"24h" min:"1s" max:"8760h" doc:"How long one waits whose agent does not say; then it counts as denied."`
	Most    int           `yaml:"most" restart:"true" default:"100000" min:"1" max:"100000000" doc:"How many wait at once; a turn that asks beyond fails."`
}

// Sealing says under which key credentials are sealed.
type Sealing struct {
	KeyEnv  string `yaml:"key_env" pattern:"^([A-Za-z_][A-Za-z0-9_]*)?$" doc:"Environment variable that holds the key: 64 hex digits, such as openssl rand -hex 32 prints."`
	KeyFile string `yaml:"key_file" doc:"File that holds the key: 32 bytes, or 64 hex digits."`

	// Key is the 32 bytes of KeyEnv or KeyFile; none when neither is set.
	Key agentbus.Credential `yaml:"-"`
}

// Admin is the listener for those who operate the bus.
type Admin struct {
	Listen    string `yaml:"listen" restart:"true" default:"127.0.0.1:8081" pattern:"^([^ /]+:[0-9]{1,5}|:[0-9]{1,5})?$" env:"AGENTBUS_ADMIN_LISTEN" doc:"Its address, host:port; empty: there is none. Beyond this machine it needs a token, and a proxy with TLS before it."`
	TokenEnv  string `yaml:"token_env" restart:"true" pattern:"^([A-Za-z_][A-Za-z0-9_]*)?$" doc:"Environment variable that holds the token of a principal that may use this listener only."`
	TokenFile string `yaml:"token_file" restart:"true" doc:"File that holds the token, on one line."`
	Content   bool   `yaml:"content" restart:"true" default:"false" doc:"Show what agents answered, as far as the journal keeps it, and what calls were asked and answered, where recording.requests keeps that; else the console tells only what became of calls."`
	Pprof     bool   `yaml:"pprof" restart:"true" default:"false" doc:"Serve profiles of the process below /debug/pprof/, to admins."`

	// Token is what TokenEnv or TokenFile holds, without a scheme; none when
	// neither is set.
	Token agentbus.Credential `yaml:"-"`
}

// Store says where things are kept.
type Store struct {
	URL          string `yaml:"url" restart:"true" default:"sqlite:agentbus.db" pattern:"^(sqlite:[^?#]+|postgres(ql)?://.+|memory:)$" env:"AGENTBUS_STORE_URL" doc:"sqlite:PATH, relative to the working directory; or postgres://USER@HOST/DATABASE?sslmode=verify-full, for a bus of several processes on several machines; or memory:, which ends with the process."`
	PasswordEnv  string `yaml:"password_env" restart:"true" pattern:"^([A-Za-z_][A-Za-z0-9_]*)?$" doc:"Environment variable that holds the password of the PostgreSQL user. A password in the URL is refused."`
	PasswordFile string `yaml:"password_file" restart:"true" doc:"File that holds it, on one line."`

	// SQLite is the path in URL, ":memory:" of none; "" for PostgreSQL.
	SQLite string `yaml:"-"`
	// Password is what PasswordEnv or PasswordFile holds; none when neither is set.
	Password agentbus.Credential `yaml:"-"`
}

// Telemetry says where to the bus tells what it does.
type Telemetry struct {
	OTLP string `yaml:"otlp" restart:"true" pattern:"^([Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+(/[^?#]*)?)?$" example:"http://127.0.0.1:4318" doc:"Base URL of a collector that takes OpenTelemetry spans as OTLP over HTTP. Empty: the standard OTEL_* variables decide; without them, none are sent."`
}

// Limits are the bounds of a call.
type Limits struct {
	MaxDepth       int           `yaml:"max_depth" default:"4" min:"1" max:"999999999" env:"CLI_BRIDGE_MAX_DEPTH" doc:"A call that arrives at this depth is refused (P10)."`
	MaxWidth       int           `yaml:"max_width" default:"64" min:"1" max:"10000" doc:"Participants that a conversation may ask at once (R20)."`
	MaxBody        Size          `yaml:"max_body" default:"4MiB" min:"1" max:"1GiB" doc:"Largest request body."`
	MaxHeader      Size          `yaml:"max_header" restart:"true" default:"64KiB" min:"1KiB" max:"16MiB" doc:"Largest header block of a request."`
	CallTimeout    time.Duration `yaml:"call_timeout" default:"10m" min:"1ms" doc:"Deadline of a whole call."`
	ReadHeader     time.Duration `yaml:"read_header" restart:"true" default:"10s" min:"1ms" doc:"Time to read the header block of a request."`
	ReadBody       time.Duration `yaml:"read_body" default:"60s" min:"1ms" doc:"Time to read the body of a request."`
	Idle           time.Duration `yaml:"idle" restart:"true" default:"120s" min:"1ms" doc:"How long a connection may wait for its next request, or for its caller to take what it is answered."`
	ResponseHeader time.Duration `yaml:"response_header" restart:"true" default:"120s" min:"1ms" doc:"How long an agent may take to begin its answer."`
	StreamIdle     time.Duration `yaml:"stream_idle" default:"5m" min:"1ms" doc:"How long a stream may be silent."`
	BudgetWait     time.Duration `yaml:"budget_wait" default:"5s" min:"0s" doc:"How long a call may wait for calls in flight to release what they hold of its budget; 0s: it is refused at once (G27)."`
	InFlight       int           `yaml:"in_flight" default:"10000" min:"1" max:"10000000" doc:"Calls at once; more are answered 503 with Retry-After (G8)."`
	ListedRefusals int           `yaml:"listed_refusals" default:"100" min:"1" max:"1000000" doc:"Refusals of a payer a second that have a record of their own, and ten times as many at once; of more the number is kept."`
}

// Forwarding says what a forwarded credential is worth.
type Forwarding struct {
	Mode ForwardingMode `yaml:"mode" default:"ignore" enum:"ignore|refuse" doc:"What a credential gets that is forwarded by a caller without inter_agent: ignore (the caller pays, and the record says so) or refuse (403)."`
}

// A ForwardingMode is what an unlisted caller's forwarded credential gets (P20).
type ForwardingMode string

// The forwarding modes.
const (
	ForwardingIgnore ForwardingMode = "ignore" // the caller pays, and the record says so
	ForwardingRefuse ForwardingMode = "refuse" // 403 untrusted_forwarder
)

// A Key is a static principal and the secret that proves it.
type Key struct {
	ID           string                 `yaml:"id" example:"user-123" required:"true" pattern:"^[!#-+\\x2d-~]{1,128}$" doc:"The principal: who pays for the calls."`
	SecretEnv    string                 `yaml:"secret_env" pattern:"^[A-Za-z_][A-Za-z0-9_]*$" doc:"Environment variable that holds the secret."`
	SecretFile   string                 `yaml:"secret_file" doc:"File that holds the secret, on one line."`
	Secret       agentbus.Credential    `yaml:"secret" pattern:"^[!-~]+$" doc:"The secret itself; refused without --dev."`
	InterAgent   bool                   `yaml:"inter_agent" doc:"May forward another's credential (P20)."`
	RequireChain ChainAbsence           `yaml:"require_chain" enum:"allow|final|reject" doc:"As chain.require_from_agents, for this caller. Empty: as it says."`
	Role         agentbus.PrincipalRole `yaml:"role" default:"user" enum:"user|admin" doc:"user may call agents; admin may operate the bus as well."`
	Agents       []string               `yaml:"agents" doc:"The only agents it may call, by name. Absent: every agent; []: none (G6)."`
	NoRunIDs     bool                   `yaml:"no_run_ids" doc:"It may not name runs: each of its calls is a run of its own (G6)."`
	Rate         *Rate                  `yaml:"rate" doc:"How often it may call. Absent: as often as it likes (G8)."`
}

// Retention says how long things are kept.
type Retention struct {
	Replies time.Duration `yaml:"replies" default:"24h" min:"1s" doc:"Stored answers; a later duplicate gets 410 reply_expired."`
	Events  time.Duration `yaml:"events" default:"30d" min:"1s" doc:"Events of finished runs; who asks for them later gets 410 reply_expired. Turns, calls and entries stay."`
}

// Recording says whether what calls are asked and answered is stored with them.
type Recording struct {
	Requests bool `yaml:"requests" default:"false" doc:"Store the body of each call's request as its caller sent it and that of its answer as its caller read it, without credentials, and the protocol headers it came and went on with. Bodies are shown where admin.content lets them; all goes after retention.replies."`
	MaxBody  Size `yaml:"max_body" default:"64KiB" min:"1KiB" max:"1MiB" doc:"How much of a body is kept; it says where it was cut."`
}

// Detach bounds the calls whose caller has left.
type Detach struct {
	Max     int           `yaml:"max" restart:"true" default:"256" min:"0" max:"1000000" doc:"How many at once; 0: a call ends when its caller leaves."`
	Timeout time.Duration `yaml:"timeout" default:"5m" min:"1ms" doc:"How long each."`
}

// Chain says how a call is judged by the calls it was made inside of.
type Chain struct {
	Cycles CycleMode `yaml:"cycles" default:"digest" enum:"digest|refuse|warn|off" doc:"A call to an agent that is answering further up already: digest (429 for the same request, a note on the record for another), refuse (429 for both), warn (a note for both) or off (G7)."`

	// MaxHops and MaxCalls bound chains of agents (C6, C13).
	MaxHops  int `yaml:"max_hops" default:"4" min:"0" max:"64" doc:"How many agents may be called one inside the other; the last one is told to answer by itself, and cannot call (C6, C8). 0: agents call nobody."`
	MaxCalls int `yaml:"max_calls" default:"64" min:"0" max:"1000000000" doc:"Calls that agents may make in one run, beside those of a conversation that was started here (C13). 0: any number."`
	// RequireFromAgents is what an agent's call without a chain gets (C10).
	RequireFromAgents ChainAbsence `yaml:"require_from_agents" default:"allow" enum:"allow|final|reject" doc:"A call over A2A of a caller with inter_agent that carries no chain of agents: allow (it counts as a user's), final (it is served, and its agent calls nobody) or reject (400) (C10)."`
	// Cue is who is told its place, DelegationTools what is not offered at the last.
	Cue             CueMode  `yaml:"cue" default:"nested" enum:"nested|always" doc:"Which models and programs are told their place in the chain, in a system message: nested, those that other agents or callers with a chain call, and those at the final hop; or always, the first ones that a conversation calls too (C9)."`
	DelegationTools []string `yaml:"delegation_tools" pattern:"^[A-Za-z0-9_.-]+[*]?$|^[*]$" example:"['ask_*']" doc:"Tools by which models have other agents called, by name or as a beginning and a *: they are taken out of what a model at the final hop is offered, and so are those with the name of an agent (C8). Absent: transfer_to_*, handoff_to_*, delegate_*, ask_agent*, ask_question_to_*, call_agent*."`
}

// A CueMode is which agents are told their place in the chain of agents (C9).
type CueMode string

// The modes.
const (
	CueNested CueMode = "nested"
	CueAlways CueMode = "always"
)

// A ChainAbsence is what becomes of an agent's call that carries no chain (C10).
type ChainAbsence string

// Lineage says how conversations are told apart.
type Lineage struct {
	LegacyParentFallback bool `yaml:"legacy_parent_fallback" default:"true" doc:"The conversation of a caller that sends a parent context and no root context is the parent context (K2). false: it is a new one."`
}

// Resolver says whose agents are looked for, and where besides the public
// network.
type Resolver struct {
	Domains    []string `yaml:"domains" example:"[bots.example.com]" pattern:"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?[.])+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$" doc:"Domains whose agents may be called by address, such as bots.example.com, each by itself. Empty: none (C35)."`
	AllowHosts []string `yaml:"allow_hosts" example:"[bus.internal:8080]" pattern:"^(http://)?[^/?#@ ]+$" doc:"Hosts, as host or host:port, that may be asked although they are on a private network or this machine, over plain HTTP too. With a port, WebFinger of that domain is asked there, and with http:// before it over plain HTTP (C33)."`
}

// A2ACompat is an older version of A2A that is served too.
type A2ACompat string

// Compat03 is A2A 0.3.
const Compat03 A2ACompat = "0.3"

// A2A says how agents are served over A2A.
type A2A struct {
	DefaultAgent string    `yaml:"default_agent" example:"NAME" doc:"Agent whose card stands at /.well-known/agent-card.json. Empty: none (A3)."`
	Push         A2APush   `yaml:"push" default:"deny" enum:"deny|passthrough" doc:"Webhooks of a2a agents, which bypass the bus: deny, or passthrough to URLs on the public network (A17)."`
	Dedupe       A2ADedupe `yaml:"dedupe" default:"off" enum:"message_id|off" doc:"message_id: a message to an a2a agent whose id was seen before is answered from memory, as with an Idempotency-Key (A20)."`
	Compat       A2ACompat `yaml:"compat" pattern:"^(0[.]3)?$" example:"'0.3'" doc:"0.3: agents that do not speak A2A themselves are served to clients of A2A 0.3 too. Empty: to those of 1.0 (A26)."`
}

// A CycleMode is what a call gets that goes round in a circle (G7).
type CycleMode string

// The cycle modes.
const (
	CyclesDigest CycleMode = "digest"
	CyclesRefuse CycleMode = "refuse"
	CyclesWarn   CycleMode = "warn"
	CyclesOff    CycleMode = "off"
)

// Ledger says how the ledger reads a key it knows.
type Ledger struct {
	OnMismatch MismatchMode `yaml:"on_mismatch" default:"refuse" enum:"refuse|execute" doc:"The same turn with another request: refuse (422 turn_mismatch), or execute it as a call of its own (G20)."`
}

// A MismatchMode is what the same turn with another request gets (G20).
type MismatchMode string

// The mismatch modes.
const (
	MismatchRefuse  MismatchMode = "refuse"  // 422 turn_mismatch
	MismatchExecute MismatchMode = "execute" // a call of its own, recorded as turn_reused
)
