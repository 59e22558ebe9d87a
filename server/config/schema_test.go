package config_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/agentbus/agentbus/server/config"
)

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(config.SchemaID, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(config.SchemaID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate reads text as an editor would, and holds it against the schema.
func validate(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// The schema and the loader agree, wherever a schema can say it.
func TestSchemaAgreesWithTheLoader(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	src := source(map[string]string{"SET": "v", "N": "4", "W": "1m", "B": "true", "MODE": "refuse", "ID": "a", "HTTP": "http"})
	src.Dev = true
	agent := func(s string) string { return "agents: {a: {" + s + "}}" }
	good := []string{
		"", "{}", "listen: 127.0.0.1:1", "listen: '[::1]:1'", "public_url: https://b.example.com", "public_url: ''",
		"store: {url: 'sqlite:x'}", "store: {url: 'memory:'}", "store:", "limits:", "keys:", "agents:", "conversations:", "limits: {}",
		"limits: {max_depth: 1, max_body: 1024, max_header: 64KiB, call_timeout: 1h30m, in_flight: 1}",
		"limits: {max_depth: '${N}', max_body: '${N}', call_timeout: '${W}'}", "strict_http: false", "strict_http: '${B}'",
		"forwarding: {mode: refuse}", "forwarding: {mode: '${MODE}'}", "retention: {replies: 30d, events: 1d12h}",
		"keys: []", "keys: [{id: a, secret_env: SET}]", "keys: [{id: '${ID}', secret: x, role: admin, inter_agent: true}]",
		"admin:", "admin: {listen: ''}", "admin: {listen: '127.0.0.1:0', pprof: true}", "admin: {listen: ':9', token_env: SET}", "escalation: off", "tools: {default: ['a:b']}", "chain: {cycles: warn, max_hops: 4, require_from_agents: allow}", "chain: {cycles: off}", "tools:", "ledger: {on_mismatch: execute}", "detach: {max: 0, timeout: 1s}",
		agent("kind: builtin, builtin: echo"), agent("kind: builtin, builtin: flaky, price: {}"), agent("kind: builtin, builtin: slow, price: "),
		agent("kind: openai, url: 'http://127.0.0.1:1/v1'"), agent("kind: openai, url: 'http://h/@x/v1'"), agent("kind: a2a, urls: ['HTTP://h/@x', 'https://h']"), "public_url: 'HTTPS://h/@x'", "telemetry: {otlp: 'HTTP://h:4318'}", agent("kind: openai, url: '${HTTP}://h/', model: m, api_key_env: SET, aliases: [x/y]"),
		agent("kind: openai, url: 'https://h/', auth: passthrough, headers: {x-a: b}, allow_plaintext: true, max_cost_usd: 0.5"),
		agent("kind: builtin, builtin: echo, price: {input: 0.15, cached: '0.075', output: 1, call: 0}"),
		agent("kind: openai, urls: ['http://127.0.0.1:1/v1', 'https://h/'], affinity: conversation, eject: {failures: 1, for: 1s, at_most: 1s}, detach: off"),
		agent("kind: openai, urls: ['http://127.0.0.1:1/v1'], eject: , detach: on"),
		agent("kind: builtin, builtin: echo, concurrency: 4, detach: off"),
		agent("kind: exec, command: [x], output: jsonl, fields: {type: t, types: [a], text: m.text, input_tokens: [in]}"), agent("kind: exec, command: [claude], output: claude-stream-json, usage_cost: true, affinity: conversation, session: {first: [--session-id, '{session}'], next: [--resume, '{session}']}"),
		agent("kind: exec, command: [codex, exec, --json], output: codex-json, affinity: conversation, session: {first: ['-'], next: [resume, '{session}', '-']}"),
		agent("kind: builtin, builtin: echo, address: '@critic@bots.example.com'"), agent("kind: builtin, builtin: echo, address: ''"), agent("kind: builtin, builtin: echo, address: 'acct:a@b.c'"),
		"resolver:", "resolver: {domains: [], allow_hosts: []}", "resolver: {domains: [xn--bcher-kva.example], allow_hosts: [bus, 'bus:1', 'http://bus:1']}",
		agent("kind: exec, command: [x], mode: worker, workers: 4, worker_idle: 1m, affinity: conversation"),
		agent("kind: exec, command: [sh, -c, 'cat'], input: arg, output: text, dir_age: 30d, env: [EDITOR], dir: /x, share_dir: true, affinity: conversation, timeout: 1m, kill_after: 2s, max_output: 1MiB, max_memory: 1GiB, forward_authorization_env: USER_KEY"),
		agent("kind: exec, command: [x], max_memory: 1073741824"), // it has no upper bound
		"budgets:", "budgets: []", "budgets: [{period: day, usd: 5.00, payer: user-123, mode: strict}]", "budgets: [{period: run, calls: 3, wall_time: 1h, mode: soft}]", "budgets: [{payer: '', caller: '${ID}', period: total, usd: 0}]",
		twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}]}}",
		twoAgents + "conversations: {c: {participants: [{agent: a, auth: agent-owned, slug: x, label: X}, {agent: b}], plan: round-robin, max_turns: 2, budget_usd: 0, halt: {contains: x}}}",
		twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], halt: , on_halt: fail}}",
		twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: fan-out, join: quorum:1, synthesizer: b}}",
		twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b, decides: true}], plan: moderator}}",
		twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: moderator, moderator: a}}", twoAgents + "limits: {max_width: 2}",
		"keys: [{id: a, secret_env: SET, agents: [], no_run_ids: true, rate: {per_second: 0.5, burst: 4}}]", "keys: [{id: a, secret_env: SET, rate: {per_second: '${N}'}}]",
		"auth:", "auth: {}", "auth: {order: [keys]}", "auth: {jwt: [{issuer: 'https://h', audience: a}]}",
		"auth: {order: [jwt, keys], jwt: [{name: n, issuer: 'http://127.0.0.1/', audience: a, jwks_url: 'https://h/k?p=1', algorithms: [ES256, PS512], leeway: 1m, role_claim: r, inter_agent: [x], admins: [y]}]}",
		"auth: {introspection: {url: 'https://h/i', client_id: c, client_secret_env: SET}}", "auth: {introspection: {url: 'https://h/i', client_id: c, client_secret_env: SET, prefixes: []}}",
		"auth: {introspection: {url: 'https://h/i', client_id: c, client_secret_env: SET, prefixes: [x402_]}}",
		"auth: {introspection: {url: 'https://h/i', client_id: c, client_secret_env: SET, prefixes: [a, b], ttl: 1m, cache: 4, timeout: 1s, audience: a, subject_claim: payer}}",
		string(config.Example()),
	}
	bad := []string{
		"a2a: {compat: yes}", "a2a: {compat: '1.0'}", "trust: {issuer: bus.example.com}", "trust: {sts: {url: 'ftp://x/y'}}", "tools: {default: [search]}",
		"chain: {delegation_tools: ['ask *']}", agent("kind: openai, url: 'http://x', tools: [search]"),
		"auth: x", "auth: {orders: [keys]}", "auth: {order: keys}", "auth: {order: [basic]}", "auth: {jwt: {}}", "auth: {jwt: [{issuer: 'https://h'}]}", "auth: {jwt: [{audience: a}]}",
		"auth: {jwt: [{issuer: id.example.com, audience: a}]}", "auth: {jwt: [{issuer: 'https://h', audience: a, algorithms: [none]}]}", "auth: {jwt: [{issuer: 'https://h', audience: a, algorithms: [HS256]}]}",
		"auth: {jwt: [{name: 'a:b', issuer: 'https://h', audience: a}]}", "auth: {jwt: [{issuer: 'https://h', audience: a, jwks_url: x}]}", "auth: {introspection: {}}",
		"auth: {introspection: {url: 'https://h/i', client_id: c, client_secret_env: SET, prefixes: ['']}}", "auth: {mtls: {subject: serial}}",
		"tls: {}", "tls: {cert_file: x}", "keys: [{id: a, secret_env: SET, rate: {per_second: -1}}]", "keys: [{id: a, secret_env: SET, rate: {per_second: x}}]", "keys: [{id: a, secret_env: SET, rate: {burst: 0.5}}]",
		"[]", "x", "4", "lsten: x", "listen: 4", "listen: ", "listen: []", "listen: true", "public_url: x", "public_url: 'http://u:p@h/'",
		"store: {url: 'postgres:h/d'}", "store: {url: 'memory:x'}", "store: {url: x}", "store: {path: x}", "store: x",
		"admin: 4", "admin: {listen: x}", "admin: {listen: 8081}", "admin: {port: 1}", "admin: {token: x}", "admin: {pprof: on}", "admin: {token_env: sk-x}",
		"limits: 4", "limits: {max_depth: 0}", "limits: {max_depth: 1.5}", "limits: {max_depth: '4'}", "limits: {max_depth: true}", "limits: {max_depth: }",
		"limits: {max_body: 4MB}", "limits: {max_body: 0}", "limits: {max_body: -1}", "limits: {max_header: 1}", "limits: {call_timeout: 10}", "limits: {call_timeout: 10 m}", "limits: {call_timeout: ''}",
		"limits: {in_flight: 99999999}", "strict_http: on", "strict_http: 1", "strict_http: ", "forwarding: {mode: x}", "forwarding: {mode: true}", "forwarding: {mode: }",
		"keys: {}", "keys: x", "keys: [x]", "keys: [{}]", "keys: [{secret_env: SET}]", "keys: [{id: a, secret_env: sk-x}]", "keys: [{id: a, secret_env: SET, role: root}]", "keys: [{id: 'a,b', secret_env: SET}]", "keys: [{id: a, secret: 'x y'}]", "keys: [ ]\nkey: []",
		"budgets: {}", "budgets: [{}]", "budgets: [{usd: 1}]", "budgets: [{period: week, usd: 1}]", "budgets: [{period: day, usd: -1}]", "budgets: [{period: day, calls: -1, usd: 1}]", "budgets: [{period: day, usd: 1, mode: firm}]", "budgets: [{period: day, usd: 1, payer: 'a b'}]",
		"agents: []", "agents: {a: }", "agents: {a: x}", "agents: {'a b': {kind: builtin, builtin: echo}}",
		agent(""), agent("kind: x"), agent("kind: exec"), agent("kind: exec, command: x"), agent("kind: exec, command: [x], input: file"), agent("kind: exec, command: [x], url: 'http://h/'"), agent("kind: a2a"), agent("kind: a2a, url: 'http://h/', dedupe: x"), agent("kind: a2a, url: 'http://h/', default_version: x"), agent("kind: builtin"), agent("kind: openai"), agent("kind: conversation"),
		agent("kind: builtin, builtin: x"), agent("kind: builtin, builtin: echo, url: 'http://h/'"), agent("kind: openai, url: 'http://h/', builtin: echo"), agent("kind: builtin, builtin: echo, conversation: c"),
		agent("kind: openai, url: 'ftp://h/'"), agent("kind: openai, url: 'http://u:p@h/'"), agent("kind: openai, url: 'http:///x'"), agent("kind: openai, url: h"), agent("kind: openai, urls: "), agent("kind: openai, urls: []"), agent("kind: openai, urls: 'http://h/'"), agent("kind: openai, urls: [h]"), agent("kind: openai, urls: [" + manyURLs(33) + "]"),
		agent("kind: openai, url: 'http://h/', urls: ['http://h/']"), agent("kind: openai, url: 'http://h/', affinity: run"), agent("kind: openai, url: 'http://h/', eject: {failures: 0}"), agent("kind: openai, url: 'http://h/', eject: {for: 10}"),
		agent("kind: builtin, builtin: echo, urls: ['http://h/']"), agent("kind: builtin, builtin: echo, affinity: conversation"), agent("kind: builtin, builtin: echo, detach: never"), agent("kind: openai, url: 'http://h/?x'"), agent("kind: openai, url: 'http://h/', auth: none"),
		agent("kind: openai, url: 'http://h/', headers: {'a b': c}"), agent("kind: openai, url: 'http://h/', headers: {a: 4}"), agent("kind: openai, url: 'http://h/', headers: []"),
		agent("kind: builtin, builtin: echo, aliases: x"), agent("kind: builtin, builtin: echo, aliases: [4]"), agent("kind: builtin, builtin: echo, aliases: ['']"), agent("kind: builtin, builtin: echo, aliases: ['a,b']"),
		agent("kind: builtin, builtin: echo, price: 4"), agent("kind: builtin, builtin: echo, price: {call: -1}"), agent("kind: builtin, builtin: echo, price: {call: '$1'}"), agent("kind: builtin, builtin: echo, price: {calls: 1}"), agent("kind: builtin, builtin: echo, max_cost_usd: x"),
		twoAgents + "conversations: {c: }", twoAgents + "conversations: {c: {}}", twoAgents + "conversations: {c: {participants: }}", twoAgents + "conversations: {c: {participants: [{agent: a}]}}",
		twoAgents + "conversations: {c: {participants: [{agent: a}, {}]}}", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b, slug: 'A b'}]}}", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b, auth: own}]}}",
		twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: auction}}", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: fan-out, join: quorum:0}}", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], on_halt: stop}}", twoAgents + "limits: {max_width: 0}", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], max_turns: 0}}", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], halt: x}}",
	}
	check := func(text string, want bool) {
		_, _, err := config.Parse("agentbus.yaml", []byte(text), src)
		if invalid := validate(t, schema, text); (err == nil) != want || (invalid == nil) != want {
			t.Errorf("%s\nwant it accepted: %v; the loader says %v; the schema says %v", text, want, err, invalid)
		}
	}
	for _, text := range good {
		check(text, true)
	}
	for _, text := range bad {
		check(text, false)
	}
}

func TestSchemaGivesDefaultsAndDocumentation(t *testing.T) {
	t.Parallel()
	var s struct {
		Schema     string `json:"$schema"`
		Properties map[string]struct {
			Description string
			Default     any
			Properties  map[string]struct {
				Description string
				Default     any
			}
		}
	}
	if err := json.Unmarshal(config.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	depth := s.Properties["limits"].Properties["max_depth"]
	if s.Schema != "https://json-schema.org/draft/2020-12/schema" || depth.Default != 4.0 || depth.Description == "" ||
		s.Properties["listen"].Default != "127.0.0.1:8080" || s.Properties["strict_http"].Default != true {
		t.Errorf("%+v", s)
	}
}
