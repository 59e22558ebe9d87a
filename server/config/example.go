package config

import (
	"cmp"
	"reflect"
	"strings"
)

const exampleHead = `# agentbus.yaml: the configuration of a bus of agents.
#
# Check it with agentbus config check; see what is in force, and where each
# value came from, with agentbus config explain. ${NAME} in a value is the
# environment variable NAME. Secrets never stand here: name a variable or a
# file that holds one.
#
# A line that begins with # and no space is a setting, as a rule at its default:
# remove the # to change it.
`

// exampleText is what the commented file shows where the defaults alone
// would not tell.
var exampleText = map[string]string{
	"admin": `#admin:
#  listen: 127.0.0.1:8081 # "" for none
#  token_env: ADMIN_TOKEN # a token for this listener alone, beside the keys of admins; or token_file
#  content: false         # the console shows what agents answered
#  pprof: false           # profiles of the process below /debug/pprof/
`,
	"store": `#store:
#  url: sqlite:agentbus.db      # or postgres://USER@HOST/DATABASE?sslmode=verify-full
#  password_env: STORE_PASSWORD # of the PostgreSQL user, never in the URL; or password_file
`,
	"keys": `#keys:
#  - {id: user-123, secret_env: USER_KEY}
#  - {id: sandbox-a, secret_env: SANDBOX_A_KEY, inter_agent: true} # may forward another's credential
#  - {id: ops, secret_env: OPS_KEY, role: admin}
#  - {id: intern, secret_env: INTERN_KEY, agents: [echo], no_run_ids: true, rate: {per_second: 0.5, burst: 5}}
`,
	"tls": `#tls:
#  cert_file: /etc/agentbus/tls.crt
#  key_file: /etc/agentbus/tls.key
#  client_ca_file: /etc/agentbus/clients.crt # whose client certificates are accepted
`,
	"auth": `#auth:
#  order: [keys, jwt, introspection, mtls]
#  jwt:
#    - issuer: https://id.example.com        # its principals are id.example.com:SUBJECT; name: calls them otherwise
#      audience: agentbus
#      jwks_url: https://id.example.com/keys # absent: from its discovery document
#      role_claim: roles                     # admin in it makes an admin
#      inter_agent: [sandbox-b]              # subjects that may forward another's credential
#  introspection:
#    url: https://pay.example.com/introspect
#    client_id: agentbus
#    client_secret_env: INTROSPECTION_SECRET
#    prefixes: [x402_, ag_]                  # the tokens it is asked about
#  mtls: {subject: common_name, inter_agent: [sandbox-c]}
`,
	"agents": `agents:
  echo: {kind: builtin, builtin: echo}            # says what it is told
  eliza: {kind: builtin, builtin: eliza}          # answers with a question
  panel: {kind: conversation, conversation: chat} # the conversation below, called as one agent
  # A real agent: anything that speaks the OpenAI dialect.
#  researcher:
#    kind: openai
#    url: http://127.0.0.1:9001/v1
#    model: gpt-x                                     # absent: the caller's model is passed on
#    api_key_env: RESEARCHER_KEY                      # the agent's own key, never the caller's
#    aliases: [bridge/sandbox/researcher]
#    headers: {x-team: search}
#    price: {input: 0.15, cached: 0.075, output: 0.60, call: 0} # USD per million tokens, and per call
#    max_cost_usd: 0.05                               # the most one call is charged
#    concurrency: 4                                   # calls of it at once; more wait in its queue
#    on_crash: refuse                                 # never ask it twice for a turn that a crash cut off
#    detach: off                                      # its calls end when their caller leaves
  # One that runs several times: each call goes to the one with the least to do.
#  translator:
#    kind: openai
#    urls: [http://127.0.0.1:9002/v1, http://127.0.0.1:9003/v1]
#    affinity: conversation                           # a conversation stays with one of them
#    eject: {failures: 5, for: 10s, at_most: 2m}      # when one of them is left out
#    price: {}                                        # free; without a price a strict budget refuses its calls
  # One that speaks A2A: its callers find it at /a2a/critic.
#  critic:
#    kind: a2a
#    url: http://127.0.0.1:9004                       # its card is below: /.well-known/agent-card.json
#    dedupe: message_id                               # the same message again is answered from memory
#    default_version: "1.0"                           # what it is told when a caller names no version
#    price: {call: 0.01}
`,
	"a2a": `#a2a:
#  default_agent: critic # whose card stands at /.well-known/agent-card.json
#  push: deny            # webhooks of a2a agents, which bypass the bus; or passthrough, to the public network
#  dedupe: off           # or message_id, for all of them
#  compat: '0.3'         # agents that do not speak A2A are served to clients of 0.3 too
`,
	"trust": `#trust:
#  issuer: https://bus.example.com            # in whose name this bus signs; public_url when it is not set
#  key_file: /etc/agentbus/signing.key        # made with: openssl rand -hex 32; or key_env
#  signed_hops: true                          # sign every hop of a chain of agents, and verify those of other buses
#  key_id: key-1                              # tells the key from those before it
#  former_keys:                               # those before it, as x in jwks.json: what they signed still counts and is proved
#    - {key_id: key-0, x: 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo}
#  buses:
#    - {issuer: https://bus.example.org, caller: bus-org}
#  issuers:
#    - {issuer: https://slack.example.com, methods: [urn:slack:signed], assurance: [platform], subject_prefixes: ["slack:T123/"], may_delegate: false}
#  sts: {url: https://id.example.com/token, token_env: STS_TOKEN} # makes evidence for the next agent (C25); without it, it is wrapped
`,
	"sealing": `#sealing:
#  key_file: /etc/agentbus/sealing.key # made with: openssl rand -hex 32; or key_env
`,
	"budgets": `#budgets:
#  - {period: run, usd: 1.00, calls: 100, wall_time: 1h}       # every run, nested calls included
#  - {payer: user-123, period: day, usd: 5.00, mode: strict}   # never overshot
#  - {caller: sandbox-a, period: month, usd: 50.00, mode: soft} # what a caller may cause; overshot by the calls in flight at most
`,
	"conversations": `conversations:
  chat:
    participants: [{agent: echo}, {agent: eliza}]
    plan: alternate # or round-robin, relay, moderator, fan-out
    max_turns: 4
#    budget_usd: 0.50
#    halt: {contains: goodbye}
#  debate:
#    participants:
#      - {agent: researcher, label: Researcher}
#      - {agent: eliza, auth: agent-owned, slug: critic} # pays for itself
#    max_turns: 6
#    call_policy: {attempt_timeout: 60s, retries: 2, breaker: {failures: 5, cooldown: 30s}}
#    on_halt: fail # an error of one of them ends the run; pause: it can be resumed
#  panel:
#    participants: [{agent: researcher}, {agent: translator}, {agent: eliza}]
#    plan: fan-out # all are asked at once
#    join: quorum:1 # all, any, quorum:K or best-effort
#    synthesizer: eliza # hears the answers, and gives the one reply
#  meeting:
#    participants: [{agent: researcher}, {agent: echo}, {agent: eliza}]
#    plan: moderator # its reply ends with next: NAME, or done
#    moderator: eliza
`,
}

// Example returns a commented agentbus.yaml: every key with its default and
// what it is for, and agents that work at once, offline, without a variable or
// a secret.
func Example() []byte {
	var b strings.Builder
	b.WriteString(exampleHead)
	for _, f := range fieldsOf(reflect.TypeFor[Config]()) {
		if f.later {
			continue
		}
		b.WriteString("\n")
		comment(&b, "# ", f.doc)
		switch text, ok := exampleText[f.name]; {
		case ok:
			b.WriteString(text)
		case isSection(f.typ):
			b.WriteString("#" + f.name + ":\n")
			for _, g := range fieldsOf(f.typ) {
				if g.later {
					continue
				}
				comment(&b, "  # ", g.doc)
				b.WriteString("#  " + g.name + ": " + cmp.Or(g.def, g.example) + "\n")
			}
		case f.def == "":
			b.WriteString("#" + f.name + ": " + f.example + "\n")
		default:
			b.WriteString("#" + f.name + ": " + f.def + "\n")
		}
	}
	return []byte(b.String())
}

// comment writes text as lines of at most 80 characters behind prefix.
func comment(b *strings.Builder, prefix, text string) {
	line := prefix
	for word := range strings.FieldsSeq(text) {
		if line != prefix && len(line)+len(word) > 80 {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = prefix
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}
