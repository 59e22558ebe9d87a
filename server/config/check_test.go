package config_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/server/config"
)

const twoAgents = "agents: {a: {kind: builtin, builtin: echo}, b: {kind: builtin, builtin: eliza}}\n"

// What the keys alone cannot say, one file a row. The row is named by its rule
// where one applies.
func TestFaultsOfMeaning(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string // without the place
	}{
		{"address without port", "listen: 127.0.0.1", []string{"listen: this is not an address; write host:port, such as 127.0.0.1:8080"}},
		{"port out of range", "listen: 127.0.0.1:65536", []string{"listen: this is not an address; write host:port, such as 127.0.0.1:8080"}},
		{"URL as address", "listen: http://127.0.0.1:80", []string{"listen: this is not an address; write host:port, such as 127.0.0.1:8080"}},
		{"admin address without port", "admin: {listen: 127.0.0.1}", []string{"admin.listen: this is not an address; write host:port, such as 127.0.0.1:8081"}},
		{"one address for both", "listen: 127.0.0.1:1\nadmin: {listen: 127.0.0.1:1}", []string{"admin.listen: this is the address of the public surface; give the admin listener a port of its own"}},
		{"admin beyond this machine", "admin: {listen: 0.0.0.0:8081}", []string{"admin.listen: other machines could reach the admin listener, and there is no token; listen on 127.0.0.1, or name the variable that holds a token with admin.token_env"}},
		{"admin on every address", "admin: {listen: ':8081'}", []string{"admin.listen: other machines could reach the admin listener, and there is no token; listen on 127.0.0.1, or name the variable that holds a token with admin.token_env"}},
		{"admin token in the file", "admin: {token_env: sk-canary}", []string{"admin.token_env: this is not the name of an environment variable; write the name of the variable that holds the secret, never the secret"}},
		{"admin token not set", "admin: {token_env: UNSET}", []string{"admin.token_env: the environment variable UNSET is not set or holds nothing; put the secret into it"}},
		{"admin token is a key's secret", "keys: [{id: a, secret_env: SET}]\nadmin: {token_env: SET}", []string{"admin: its token is the secret of keys[0] too, so nobody could tell who calls; give each a secret of its own"}},
		{"public URL", "public_url: bus.example.com", []string{"public_url: the URL is not http or https; write it as http://host:port/path or https://host/path"}},
		{"password in the URL", "store: {url: 'postgres://u:canary@h/d'}", []string{"store.url: the URL holds a password, which would be shown; remove it, and name the variable that holds it: store.password_env"}},
		{"password as a parameter", "store: {url: 'postgres://u@h/d?password=canary'}", []string{"store.url: the URL holds a password, which would be shown; remove it, and name the variable that holds it: store.password_env"}},
		{"postgres without host", "store: {url: 'postgres:///d'}", []string{"store.url: this is not the URL of a database; write postgres://USER@HOST/DATABASE?sslmode=verify-full"}},
		{"path in memory", "store: {url: 'memory:x'}", []string{"store.url: this is not the URL of a store; write sqlite:PATH, such as sqlite:agentbus.db, postgres://USER@HOST/DATABASE, or memory:"}},
		{"store without path", "store: {url: 'sqlite:'}", []string{"store.url: this is not the path of a file; write sqlite:PATH, such as sqlite:agentbus.db, with neither ? nor #"}},
		{"store in memory", "store: {url: 'sqlite::memory:'}", []string{"store.url: this is not the path of a file; write sqlite:PATH, such as sqlite:agentbus.db, with neither ? nor #"}},
		{"store by path", "store: {url: agentbus.db}", []string{"store.url: this is not the URL of a store; write sqlite:PATH, such as sqlite:agentbus.db, postgres://USER@HOST/DATABASE, or memory:"}},

		{"name", "agents: {'a b': {kind: builtin, builtin: echo}}", []string{"agents.a b: this is not a name; use 1 to 64 letters, digits, _ and -, and begin with a letter or digit"}},
		{"A8 no version", "agents: {a: {kind: a2a, url: 'http://127.0.0.1/', default_version: one}}", []string{`agents.a.default_version: this is not a version of A2A; write it like "1.0"`}},
		{"A7 own header", "agents: {a: {kind: a2a, url: 'http://127.0.0.1/', forward_headers: [x-tangle-runid]}}", []string{"agents.a.forward_headers[0]: a header of the protocol cannot be set (K6); remove it; the bus writes it from the lineage of the call"}},
		{"A3 no default agent", "a2a: {default_agent: a}", []string{`a2a.default_agent: there is no agent "a"; declare it under agents`}},
		{"C16 a former key", "trust: {former_keys: [{key_id: key-1, x: 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo}]}", []string{"trust.former_keys[0]: another key has this key_id; give the key that signs now a key_id of its own"}},
		{"A10 no network", "trusted_proxies: [10.0.0.0/33]", []string{"trusted_proxies[0]: this is neither a network nor an address; write it like 10.0.0.0/8 or 10.0.0.7"}},
		{"long name", "agents: {" + strings.Repeat("a", 65) + ": {kind: builtin, builtin: echo}}", []string{"agents." + strings.Repeat("a", 65) + ": this is not a name; use 1 to 64 letters, digits, _ and -, and begin with a letter or digit"}},
		{"names that differ in case", "agents: {a: {kind: builtin, builtin: echo}, A: {kind: builtin, builtin: echo}}", []string{"agents.a: the name differs from A in case only; rename one of them"}},
		{"G1 alias of another", "agents: {a: {kind: builtin, builtin: echo, aliases: [x]}, b: {kind: builtin, builtin: echo, aliases: [x]}}", []string{`agents.b.aliases[0]: "x" is a name of agent a; choose another alias`}},
		{"G1 alias is a name", "agents: {a: {kind: builtin, builtin: echo, aliases: [b]}, b: {kind: builtin, builtin: echo}}", []string{`agents.a.aliases[0]: "b" is a name of agent b; choose another alias`}},
		{"G1 built-in alias", "agents: {a: {kind: builtin, builtin: echo, aliases: [agent/b, bridge/builtin/b]}, b: {kind: builtin, builtin: echo}}", []string{
			`agents.a.aliases[0]: "agent/b" is a name of agent b; choose another alias`,
			`agents.a.aliases[1]: "bridge/builtin/b" is a name of agent b; choose another alias`,
		}},
		{"G1 own built-in alias", "agents: {a: {kind: builtin, builtin: echo, aliases: [bridge/builtin/a]}}", []string{`agents.a.aliases[0]: the agent answers to "bridge/builtin/a" already; remove the alias`}},
		{"alias with a comma", "agents: {a: {kind: builtin, builtin: echo, aliases: ['x,y']}}", []string{"agents.a.aliases[0]: this is not an alias; use 1 to 200 visible ASCII characters without comma and double quote"}},

		{"C34 no domain", "agents: {a: {kind: builtin, builtin: echo, address: '@critic'}}", []string{"agents.a.address: this is not the address of an agent: it names no agent, or no domain; write it as \"@critic@bots.example.com\""}},
		{"C34 one label", "agents: {a: {kind: builtin, builtin: echo, address: '@foo@localhost'}}", []string{"agents.a.address: this is not the address of an agent: its domain has one label, so it is known on one network only; write it as \"@critic@bots.example.com\""}},
		{"C34 a folder", "agents: {a: {kind: builtin, builtin: echo, address: '@..@b.c'}}", []string{"agents.a.address: what stands before the domain would be read as a folder; choose a name of letters"}},
		{"C34 one address twice", "agents: {a: {kind: builtin, builtin: echo, address: '@Critic@b.c'}, b: {kind: builtin, builtin: echo, address: 'acct:critic@B.c'}}", []string{"agents.b.address: it is the address of agent a too; give each agent an address of its own"}},
		{"C34 an alias of another", "agents: {a: {kind: builtin, builtin: echo, address: '@critic@b.c'}, b: {kind: builtin, builtin: echo, aliases: ['@Critic@b.c']}}", []string{"agents.a.address: it is the address of agent b too; give each agent an address of its own"}},
		{"C36 two cards at one place", "public_url: https://b.c\nagents: {a: {kind: builtin, builtin: echo, address: '@critic@b.c'}, b: {kind: builtin, builtin: echo, address: '@critic@x.b.c'}}", []string{"agents.b.address: under public_url, the card of this agent and that of a would stand at one place; choose another name before the domain, or leave public_url out"}},
		{"C35 no domain", "resolver: {domains: [example.com, Example.com, localhost, 'bücher.example', '*.example.com', example.com.]}", []string{
			"resolver.domains[1]: this is not the domain of an address; write two labels or more in lower case, such as bots.example.com; others than ASCII in their xn-- form",
			"resolver.domains[2]: this is not the domain of an address; write two labels or more in lower case, such as bots.example.com; others than ASCII in their xn-- form",
			"resolver.domains[3]: this is not the domain of an address; write two labels or more in lower case, such as bots.example.com; others than ASCII in their xn-- form",
			"resolver.domains[4]: this is not the domain of an address; write two labels or more in lower case, such as bots.example.com; others than ASCII in their xn-- form",
			"resolver.domains[5]: this is not the domain of an address; write two labels or more in lower case, such as bots.example.com; others than ASCII in their xn-- form",
		}},
		{"C33 no host", "resolver: {allow_hosts: [bus.internal, 'bus:1', '[::1]', '[::1]:8080', 10.0.0.1, 'http://bus:1', 'bus:0', 'https://bus', '::1', 'bus/x']}", []string{
			"resolver.allow_hosts[6]: this is neither host nor host:port; write it as bus.internal, bus.internal:8080 or [::1]:8080",
			"resolver.allow_hosts[7]: this is neither host nor host:port; write it as bus.internal, bus.internal:8080 or [::1]:8080",
			"resolver.allow_hosts[8]: this is neither host nor host:port; write it as bus.internal, bus.internal:8080 or [::1]:8080",
			"resolver.allow_hosts[9]: this is neither host nor host:port; write it as bus.internal, bus.internal:8080 or [::1]:8080",
		}},

		{"openai without url", "agents: {a: {kind: openai}}", []string{"agents.a.url: an agent of kind openai needs this key; add url: http://127.0.0.1:9001/v1"}},
		{"url and urls", "agents: {a: {kind: openai, url: 'http://127.0.0.1/', urls: ['http://127.0.0.1/']}}", []string{"agents.a.urls: it stands in place of url, and both are there; keep one of the two"}},
		{"no urls", "agents: {a: {kind: openai, urls: []}}", []string{"agents.a.urls: an agent has 1 to 32 URLs; write that many, or url: and the only one"}},
		{"too many urls", "agents: {a: {kind: openai, urls: [" + manyURLs(33) + "]}}", []string{"agents.a.urls: an agent has 1 to 32 URLs; write that many, or url: and the only one"}},
		{"one url twice", "agents: {a: {kind: openai, urls: ['http://127.0.0.1/v1', 'http://127.0.0.1/v1/']}}", []string{"agents.a.urls[1]: the URL is that of agents.a.urls[0] too; remove one of them"}},
		{"password in urls", "agents: {a: {kind: openai, urls: ['http://127.0.0.1/v1', 'http://u:canary@h/']}}", []string{"agents.a.urls[1]: the URL holds a user or password; remove it; an agent's key comes by api_key_env or api_key_file"}},
		{"urls of another kind", "agents: {a: {kind: builtin, builtin: echo, urls: ['http://h/']}}", []string{"agents.a.urls: the key belongs to agents of kind openai or a2a, and this is one of kind builtin; remove it, or change kind"}},
		{"ejected for longer than at most", "agents: {a: {kind: openai, url: 'http://127.0.0.1/', eject: {for: 5m}}}", []string{"agents.a.eject.at_most: it is less than eject.for, 5m; write as much or more"}},
		{"builtin without builtin", "agents: {a: {kind: builtin}}", []string{"agents.a.builtin: an agent of kind builtin needs this key; add builtin: echo, eliza, loop, flaky, slow or pay"}},
		{"key of another kind", "agents: {a: {kind: builtin, builtin: echo, url: 'http://h/'}}", []string{"agents.a.url: the key belongs to agents of kind openai or a2a, and this is one of kind builtin; remove it, or change kind"}},
		{"ftp", "agents: {a: {kind: openai, url: 'ftp://h/'}}", []string{"agents.a.url: the URL is not http or https; write it as http://host:port/path or https://host/path"}},
		{"no host", "agents: {a: {kind: openai, url: 'http:///v1'}}", []string{"agents.a.url: the URL names no host; write it as http://host:port/path or https://host/path"}},
		{"not a URL", "agents: {a: {kind: openai, url: 'http://h:port/'}}", []string{"agents.a.url: this is not a URL; write it as http://host:port/path or https://host/path"}},
		{"password in the URL", "agents: {a: {kind: openai, url: 'http://u:canary@h/'}}", []string{"agents.a.url: the URL holds a user or password; remove it; an agent's key comes by api_key_env or api_key_file"}},
		{"query in the URL", "agents: {a: {kind: openai, url: 'http://h/?key=canary'}}", []string{"agents.a.url: the URL holds a query or a fragment, which would be lost; remove what follows ? or #"}},
		{"passthrough and key", "agents: {a: {kind: openai, url: 'http://127.0.0.1/', auth: passthrough, api_key_env: SET}}", []string{"agents.a.auth: passthrough sends the caller's Authorization, and the agent has a key of its own; keep one of auth and the key"}},
		{"unknown conversation", "agents: {p: {kind: conversation, conversation: debat}}\nconversations: {}", []string{`agents.p.conversation: there is no conversation "debat"; declare it under conversations`}},

		{"R1 one participant", twoAgents + "conversations: {c: {participants: [{agent: a}]}}", []string{"conversations.c.participants: a conversation needs two participants or more (R1); add one"}},
		{"R1 no participants", twoAgents + "conversations: {c: {}}", []string{"conversations.c.participants: the key is missing; add participants: a list"}},
		{"R1 no turns", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], max_turns: 0}}", []string{`conversations.c.max_turns: "0" is less than 1; write 1 or more`}},
		{"R3 alternate of three", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}, {agent: a, slug: x}], plan: alternate}}", []string{"conversations.c.plan: alternate is for exactly two participants (R3); write plan: round-robin"}},
		{"R3 no such plan", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: auction}}", []string{`conversations.c.plan: "auction" is not a value it can have; write alternate, round-robin, relay, moderator or fan-out`}},
		{"R20 quorum of more than there are", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: fan-out, join: quorum:3}}", []string{"conversations.c.join: it needs 3 answers, and 2 are asked; write quorum:2 or less"}},
		{"C17 a quorum of those who are mentioned", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: fan-out, mentions: true, join: quorum:2}}", []string{"conversations.c.join: a message may mention fewer than a quorum; write all, any or best-effort, or remove mentions"}},
		{"C17 mentions of another plan", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], mentions: true}}", []string{"conversations.c.mentions: it belongs to plan: fan-out, and the plan is alternate; remove it, or write plan: fan-out"}},
		{"R20 no such join", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: fan-out, join: quorum:0}}", []string{`conversations.c.join: "quorum:0" is not a join; write all, any, best-effort or quorum:K`}},
		{"R20 too wide", twoAgents + "limits: {max_width: 1}\nconversations: {c: {participants: [{agent: a}, {agent: b}], plan: fan-out}}", []string{"conversations.c.participants: 2 are asked at once, and limits.max_width is 1 (R20); raise limits.max_width, or ask fewer"}},
		{"R20 too few turns", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: fan-out, synthesizer: b, max_turns: 1}}", []string{"conversations.c.max_turns: this fan-out takes 2 turns; write 2 or more, or leave it out"}},
		{"R20 synthesizer from elsewhere", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: fan-out, synthesizer: c}}", []string{`conversations.c.synthesizer: "c" is no participant; name one of a, b`}},
		{"R1 an agent twice", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: a}], plan: round-robin}}", []string{`conversations.c.participants[1]: participants "a" and "a" both have the slug a (P15); give one of them another with slug:`}},
		{"R1 one name", twoAgents + "conversations: {c: {participants: [{agent: a, slug: b}, {agent: a, slug: x}, {agent: b, slug: y}]}}", []string{`conversations.c.participants[2]: "b" is the name of two participants (R1); give one of them another slug`}},
		{"keys of another plan", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b, decides: true}], join: all, moderator: a}}", []string{
			"conversations.c.join: it belongs to plan: fan-out, and the plan is alternate; remove it, or write plan: fan-out",
			"conversations.c.moderator: it belongs to plan: moderator, and the plan is alternate; remove it, or write plan: moderator",
		}},
		{"R3 nobody decides", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: moderator}}", []string{"conversations.c.plan: moderator needs somebody who decides; write moderator: NAME, one of the participants"}},
		{"R3 two decide", twoAgents + "conversations: {c: {participants: [{agent: a, decides: true}, {agent: b, decides: true}], plan: moderator, moderator: a}}", []string{"conversations.c.participants: a and b decide, and one may; leave decides: true at one of them"}},
		{"R3 another decides", twoAgents + "conversations: {c: {participants: [{agent: a, decides: true}, {agent: b}], plan: moderator, moderator: b}}", []string{`conversations.c.moderator: "a" decides already; remove decides: true there, or this key`}},
		{"R3 moderator from elsewhere", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], plan: moderator, moderator: c}}", []string{`conversations.c.moderator: "c" is no participant; name one of a, b`}},
		{"R3 done is no name", "agents: {a: {kind: builtin, builtin: echo}, done: {kind: builtin, builtin: echo}}\nconversations: {c: {participants: [{agent: a}, {agent: done}], plan: moderator, moderator: a}}", []string{"conversations.c.participants[1]: a moderator ends with done, so nobody can have that name; give it another name"}},
		{"R16 no such halt", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b}], on_halt: stop}}", []string{`conversations.c.on_halt: "stop" is not a value it can have; write pause or fail`}},
		{"unknown agent", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: bb}]}}", []string{`conversations.c.participants[1].agent: there is no agent "bb"; declare it under agents, or name a or b`}},
		{"P15 one slug", twoAgents + "conversations: {c: {participants: [{agent: a}, {agent: b, slug: a}]}}", []string{`conversations.c.participants[1]: participants "a" and "b" both have the slug a (P15); give one of them another with slug:`}},
		{"P14 not a slug", twoAgents + "conversations: {c: {participants: [{agent: a, slug: A b}, {agent: b}]}}", []string{`conversations.c.participants[0].slug: "A b" is not a slug; use lower-case letters, digits, _ and - (P14)`}},
		{"conversation of itself", "agents: {a: {kind: builtin, builtin: echo}, p: {kind: conversation, conversation: c}}\nconversations: {c: {participants: [{agent: a}, {agent: p}]}}", []string{"conversations.c: it takes part in itself: c → c; remove one of these participants"}},
		{"conversations of each other", `
agents: {a: {kind: builtin, builtin: echo}, p: {kind: conversation, conversation: c}, q: {kind: conversation, conversation: d}}
conversations: {c: {participants: [{agent: a}, {agent: q}]}, d: {participants: [{agent: a}, {agent: p}]}}`, []string{"conversations.c: it takes part in itself: c → d → c; remove one of these participants"}},

		{"two keys of one id", "keys: [{id: a, secret_env: SET}, {id: a, secret_env: SET2}]", []string{"keys[1].id: the id is that of keys[0] too; give each key an id of its own"}},
		{"two keys of one secret", "keys: [{id: a, secret_env: SET}, {id: b, secret_env: SET}]", []string{"keys[1]: its secret is that of keys[0] too, so nobody could tell who calls; give each key a secret of its own"}},
		{"key without secret", "keys: [{id: a}]", []string{"keys[0]: the key has no secret; name the variable that holds it with secret_env, or the file with secret_file"}},
		{"id with a comma", "keys: [{id: 'a,b', secret_env: SET}]", []string{"keys[0].id: this is not an id; write 1 to 128 visible ASCII characters without comma and double quote"}},
		{"G27 budget of nothing", "budgets: [{period: day}]", []string{"budgets[0]: the budget bounds nothing; add usd, calls or, for a run, wall_time"}},
		{"G27 budget without period", "budgets: [{usd: 1}]", []string{"budgets[0].period: the key is missing; add period: run, hour, day, month or total"}},
		{"G27 budget of a week", "budgets: [{usd: 1, period: week}]", []string{`budgets[0].period: "week" is not a value it can have; write run, hour, day, month or total`}},
		{"G27 wall time of a day", "budgets: [{period: day, wall_time: 1h}]", []string{"budgets[0].wall_time: a wall time bounds a run, and this is a budget of a day; write period: run, or remove it"}},
		{"G27 two budgets of one scope", "budgets: [{payer: a, period: day, usd: 1}, {payer: a, period: day, calls: 1}, {payer: a, period: run, usd: 1}]", []string{"budgets[1]: it bounds the calls that budgets[0] bounds; make one budget of the two"}},
		{"G27 budget of no id", "budgets: [{payer: 'a,b', period: day, usd: 1}]", []string{"budgets[0].payer: this is not an id; write 1 to 128 visible ASCII characters without comma and double quote"}},
		{"G27 budget below zero", "budgets: [{period: day, usd: -1}]", []string{`budgets[0].usd: "-1" is not an amount of dollars; write a decimal such as 0.15, without sign, exponent or currency`}},
		{"role", "keys: [{id: a, secret_env: SET, role: root}]", []string{`keys[0].role: "root" is not a value it can have; write user or admin`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, f := range faults(t, tt.text, source(map[string]string{"SET": "canary-1", "SET2": "canary-2"})) {
				_, f, _ = strings.Cut(f, ": ") // the place, which the tests of reading look at
				got = append(got, f)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func manyURLs(n int) string {
	urls := make([]string, n)
	for i := range urls {
		urls[i] = "'http://127.0.0.1:" + strconv.Itoa(9000+i) + "'"
	}
	return strings.Join(urls, ", ")
}

func TestK6ProtocolHeadersCannotBeConfigured(t *testing.T) {
	t.Parallel()
	const protocol = "a header of the protocol cannot be set (K6); remove it; the bus writes it from the lineage of the call"
	for name, want := range map[string]string{
		"x-tangle-forwarded-depth":         protocol,
		"X-Tangle-RunID":                   protocol,
		"x_tangle_forwarded_authorization": protocol, // P5
		"x-tangle-something-new":           protocol,
		"traceparent":                      protocol,
		"tracestate":                       protocol,
		"x-agentbus-path":                  protocol,
		"x_kagent_root_context_id":         protocol,
		"Authorization":                    "the agent's Authorization is not set here; name the variable that holds its key with api_key_env, or the file with api_key_file",
		"Host":                             "the bus sets this header itself; remove it",
		"idempotency-key":                  "the bus sets this header itself; remove it",
		"a b":                              "this is not the name of a header; use letters, digits and -",
		"x-ok":                             "",
		"x-kagent-root-context-id":         "", // K6 lets configured headers win over the context
	} {
		text := "agents: {a: {kind: openai, url: 'http://127.0.0.1/v1', headers: {'" + name + "': v}}}"
		if want == "" {
			parse(t, text, source(nil))
			continue
		}
		if diff := cmp.Diff([]string{"agentbus.yaml:1:66: agents.a.headers." + name + ": " + want}, faults(t, text, source(nil))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	got := faults(t, `agents: {a: {kind: openai, url: 'http://127.0.0.1/v1', headers: {x: "a\r\nb: canary"}}}`, source(nil))
	if len(got) != 1 || !strings.HasSuffix(got[0], "agents.a.headers.x: the value holds a character that it cannot have in a header; use visible ASCII characters") {
		t.Errorf("line break in a header: %q", got)
	}
}

// P24: plain HTTP beyond this machine is warned of, unless the agent allows it.
func TestP24PlainHTTP(t *testing.T) {
	t.Parallel()
	tests := []struct {
		url, more string
		warned    bool
	}{
		{"http://127.0.0.1:9001/v1", "", false},
		{"http://127.8.8.8/", "", false},
		{"http://[::1]:9001/v1", "", false},
		{"http://[::ffff:127.0.0.1]/", "", false},
		{"http://localhost:9001", "", false},
		{"http://LOCALHOST./", "", false},
		{"http://a.localhost/", "", false},
		{"https://agents.example.com/v1", "", false},
		{"http://agents.example.com/v1", "", true},
		{"http://10.0.0.1/", "", true},
		{"http://0.0.0.0/", "", true},
		{"http://localhost.example.com/", "", true},
		{"http://agents.example.com/v1", ", allow_plaintext: true", false},
		{"http://agents.example.com/v1", ", allow_plaintext: false", true},
	}
	for _, tt := range tests {
		_, warnings := parse(t, "agents: {a: {kind: openai, url: '"+tt.url+"'"+tt.more+"}}", source(nil))
		if got := len(warnings) == 1 && strings.Contains(warnings[0].String(), "(P24)"); got != tt.warned || len(warnings) > 1 {
			t.Errorf("%s%s: %v, want a warning: %v", tt.url, tt.more, warnings, tt.warned)
		}
	}
}

// C35: an address that leads others to where they do not go is warned of.
func TestAddressesOthersCannotFollow(t *testing.T) {
	t.Parallel()
	for public, want := range map[string]string{
		"": "", "https://bots.example.com": "", "https://bus.bots.example.com/x": "", "http://bots.example.com": "(C33)", "https://example.com": "(C35)", "https://evil-bots.example.com": "(C35)",
	} {
		cfg, warnings := parse(t, "public_url: '"+public+"'\nagents: {a: {kind: builtin, builtin: echo, address: Critic@Bots.example.com}}", source(nil))
		if got := cfg.Agents["a"].At.String(); got != "@Critic@bots.example.com" {
			t.Errorf("%s: %s", public, got)
		}
		if len(warnings) > 1 || (len(warnings) == 1) != (want != "") || len(warnings) == 1 && !strings.Contains(warnings[0].String(), want) {
			t.Errorf("%s: %v, want a warning of %q", public, warnings, want)
		}
	}
}

// G27: an agent whose cost nobody knows is warned of where a strict budget would
// refuse each of its calls.
func TestUnpricedAgentUnderAStrictBudgetIsWarnedOf(t *testing.T) {
	t.Parallel()
	const talks = "conversations: {c: {participants: [{agent: a}, {agent: b}]}}\n"
	tests := []struct {
		budget, kind, agent, more string
		warned                    bool
	}{
		{"usd: 1", "openai", "", "", true},
		{"usd: 1", "a2a", "", "", true},
		{"usd: 1, mode: soft", "openai", "", "", false},
		{"calls: 1", "openai", "", "", false},
		{"usd: 1", "exec", "", "", true}, // it is free to the budget, and seldom is
		{"usd: 1, mode: soft", "exec", "", "", false},
		{"usd: 1", "exec", ", price: {}", talks, false},
		{"usd: 1", "exec", ", max_cost_usd: 1", talks, false},
		{"usd: 1", "openai", ", price: {}", talks, false},
		{"usd: 1", "openai", ", price: {}, usage_cost: true", "", true},
		{"usd: 1", "openai", ", max_cost_usd: 1, usage_cost: true", "", false},
		{"usd: 1", "openai", ", price: {output: 1}", "", false}, // its callers may bound its output
		{"usd: 1", "openai", ", price: {output: 1}", talks, true},
		{"usd: 1", "openai", ", price: {output: 1}, max_cost_usd: 1", talks, false},
	}
	for _, tt := range tests {
		at := "url: 'http://127.0.0.1/'"
		if tt.kind == "exec" {
			at = "command: [cat]"
		}
		_, warnings := parse(t, tt.more+"budgets: [{period: day, "+tt.budget+"}]\nagents: {a: {kind: "+tt.kind+", "+at+tt.agent+"}, b: {kind: builtin, builtin: echo}}", source(nil))
		if got := len(warnings) == 1 && strings.Contains(warnings[0].String(), "agents.a: "); got != tt.warned || len(warnings) > 1 {
			t.Errorf("%+v: %v", tt, warnings)
		}
	}
}

func TestListeningBeyondLoopbackIsWarnedOf(t *testing.T) {
	t.Parallel()
	for listen, warned := range map[string]bool{
		"127.0.0.1:8080": false, "localhost:0": false, "'[::1]:80'": false,
		"0.0.0.0:8080": true, "':8080'": true, "'[::]:8080'": true, "bus.example.com:80": true,
	} {
		_, warnings := parse(t, "listen: "+listen, source(nil))
		if (len(warnings) == 1) != warned {
			t.Errorf("%s: %v, want a warning: %v", listen, warnings, warned)
		}
	}
}

func TestAdminListener(t *testing.T) {
	t.Parallel()
	src := source(map[string]string{"TOKEN": "canary"})
	for text, warned := range map[string]bool{
		"listen: 127.0.0.1:1": false, "listen: ''": false, "listen: '127.0.0.1:0'": false, "token_env: TOKEN, pprof: true": false,
		"listen: '0.0.0.0:1', token_env: TOKEN": true, "listen: ':1', token_env: TOKEN": true,
	} {
		c, warnings := parse(t, "admin: {"+text+"}", src)
		if (len(warnings) == 1) != warned {
			t.Errorf("%s: %v, want a warning: %v", text, warnings, warned)
		}
		if strings.Contains(text, "TOKEN") != (c.Admin.Token.Reveal() == "canary") || strings.Contains(config.Explain(c), "canary") {
			t.Errorf("%s: %+v", text, c.Admin)
		}
	}
}

// R3, R20: who decides is known by either key, and a fan-out may take as many
// turns as it needs, unless the file says how many.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text      string
		moderator string
		decides   bool // the second participant
		turns     int
	}{
		{"{agent: a}, {agent: b}], plan: moderator, moderator: b", "b", true, 10},
		{"{agent: a}, {agent: b, decides: true}], plan: moderator", "b", true, 10},
		{"{agent: a}, {agent: b}], plan: fan-out, max_turns: 2", "", false, 2},
		{"{agent: a}, {agent: b}" + strings.Repeat(", {agent: x%d}", 10) + "], plan: fan-out, synthesizer: b, join: quorum:11", "", false, 12},
	} {
		text := twoAgents + "conversations: {c: {participants: [" + tt.text + "}}"
		for i := range 10 {
			name := fmt.Sprintf("x%d", i)
			text = strings.Replace(text, "x%d", name, 1)
			text = strings.Replace(text, "agents: {", "agents: {"+name+": {kind: builtin, builtin: echo}, ", 1)
		}
		cfg, _ := parse(t, text, source(nil))
		c := cfg.Conversations["c"]
		if c.Moderator != tt.moderator || c.Participants[1].Decides != tt.decides || c.MaxTurns != tt.turns {
			t.Errorf("%s: %+v", tt.text, c)
		}
	}
}
