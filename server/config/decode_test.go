package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is wrong with a value, one file a row: each fault names its place, its
// key, what is wrong and what to do.
func TestFaultsOfReading(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string // without the file's name
	}{
		{"unknown key", "lsten: x", []string{"1:1: lsten: there is no such key; did you mean listen?"}},
		{"unknown nested key", "limits:\n  max_dept: 4", []string{"2:3: limits.max_dept: there is no such key; did you mean max_depth?"}},
		{"swapped letters", "sotre: {url: 'sqlite:x'}", []string{"1:1: sotre: there is no such key; did you mean store?"}},
		{"nothing near", "ledger: {colour: blue}", []string{"1:10: ledger.colour: there is no such key; the keys here are on_mismatch"}},
		{"merge key", "ledger: {<<: {on_mismatch: refuse}}", []string{"1:10: ledger.<<: there is no such key; merge keys are not read; write the values out"}},
		{"same key twice", "listen: a:1\nlisten: b:1", []string{"2:1: listen: the key stands here a second time; the first is in line 1; remove one of them"}},
		{"same name twice", "agents:\n  a: {kind: builtin, builtin: echo}\n  a: {}", []string{"3:3: agents.a: the key stands here a second time; the first is in line 2; remove one of them"}},
		{"twice where nothing is acted on", "chain: {max_hops: 1, max_hops: 2}", []string{"1:22: chain.max_hops: the key stands here a second time; the first is in line 1; remove one of them"}},
		{"alias", "store: &s {url: 'sqlite:x'}\nledger: *s", []string{"2:9: ledger: aliases are not read; write the value out"}},
		{"alias as a value", "listen: &l 127.0.0.1:1\npublic_url: *l", []string{"2:13: public_url: aliases are not read; write the value out"}},
		{"alias where nothing is acted on", "tools: &t {default: [*t]}", nil},
		{"foreign tag", "listen: !secret x", []string{`1:9: listen: the tag "!secret" means nothing here; remove it`}},
		{"key that is a list", "? [a]\n: b", []string{"1:3: a key must be one word; write it as text, without brackets and anchors"}},
		{"two documents", "listen: 127.0.0.1:1\n---\nlisten: 127.0.0.1:2", []string{"2:1: the file holds a second document; remove the line --- and what follows, or merge the two"}},
		{"a list as a file", "- a", []string{"1:1: here stands a list where keys and values must stand; write keys and values"}},
		{"text as a file", "hello", []string{"1:1: here stands text where keys and values must stand; write keys and values"}},
		{"number as address", "listen: 8080", []string{"1:9: listen: here stands a number where an address must stand; write host:port, such as 127.0.0.1:8080"}},
		{"number as text", "public_url: 8080", []string{`1:13: public_url: here stands a number where text must stand; put it in quotes: "8080"`}},
		{"truth as text", "public_url: true", []string{`1:13: public_url: here stands true or false where text must stand; put it in quotes: "true"`}},
		{"command line as list", "agents: {a: {kind: exec, command: claude --print}}", []string{"1:35: agents.a.command: here stands text where a list must stand; write a list, such as [claude, --print]"}},
		{"nothing as text", "listen:", []string{"1:8: listen: it has no value; write text, or remove the key"}},
		{"list as text", "listen: [a]", []string{"1:9: listen: here stands a list where one value must stand; write one value"}},
		{"text as truth", "strict_http: on", []string{"1:14: strict_http: here stands text where true or false must stand; write true or false"}},
		{"text as section", "limits: many", []string{"1:9: limits: here stands text where keys and values must stand; write keys and values"}},
		{"section as list", "keys: {id: a}", []string{"1:7: keys: here stands a set of keys and values where a list must stand; write a list"}},
		{"text as number", "limits: {max_depth: four}", []string{"1:21: limits.max_depth: here stands text where a whole number must stand; write a whole number"}},
		{"quoted number", "limits: {max_depth: '4'}", []string{"1:21: limits.max_depth: the number stands in quotes; remove the quotes"}},
		{"fraction", "limits: {max_depth: 4.5}", []string{"1:21: limits.max_depth: here stands a number where a whole number must stand; write a whole number"}},
		{"hexadecimal", "limits: {max_depth: 0x4}", []string{`1:21: limits.max_depth: "0x4" is not a whole number; write it in digits, such as 4`}},
		{"size of the wrong unit", "limits: {max_body: 4MB}", []string{`1:20: limits.max_body: "4MB" is not a size; write a number and B, KiB, MiB or GiB, such as 4MiB`}},
		{"size too large", "limits: {max_body: 2GiB}", []string{`1:20: limits.max_body: "2GiB" is more than 1GiB; write 1GiB or less`}},
		{"size that overflows", "limits: {max_body: 999999999999999999GiB}", []string{`1:20: limits.max_body: "999999999999999999GiB" is not a size; write a number and B, KiB, MiB or GiB, such as 4MiB`}},
		{"duration without unit", "drain_timeout: 30", []string{"1:16: drain_timeout: 30 has no unit; write 30s for seconds, or another of ms, m, h, d"}},
		{"duration that is none", "drain_timeout: soon", []string{`1:16: drain_timeout: "soon" is not a duration; write a number and a unit, such as 500ms, 30s, 10m, 24h or 30d`}},
		{"duration of nothing", "limits: {call_timeout: 0s}", []string{`1:24: limits.call_timeout: "0s" is less than 1ms; write 1ms or more`}},
		{"duration that overflows", "drain_timeout: 999999999d", []string{`1:16: drain_timeout: "999999999d" is not a duration; write a number and a unit, such as 500ms, 30s, 10m, 24h or 30d`}},
		{"value outside the list", "forwarding: {mode: ignor}", []string{`1:20: forwarding.mode: "ignor" is not a value it can have; write ignore or refuse; did you mean ignore?`}},
		{"missing variable", "public_url: https://${HOST}/", []string{"1:13: public_url: the environment variable HOST is not set; set it, or write $${HOST} for the text itself"}},
		{"variable without a name", "public_url: https://${}/", []string{"1:13: public_url: ${ begins the name of a variable, and none follows; write ${NAME}, or $${ for the text itself"}},
		{"control character", `listen: "a\u0007:1"`, []string{"1:9: listen: the value holds a control character; write it on one line of plain text"}},
		{"key without id", "keys: [{secret_env: SET}]", []string{"1:8: keys[0].id: the key is missing; add id: user-123"}},
		{"key of nobody", "keys: [{id: '', secret_env: SET}]", []string{"1:13: keys[0].id: this is not an id; write 1 to 128 visible ASCII characters without comma and double quote"}},
		{"kind of nothing", "agents: {a: {kind: ''}}", []string{`1:20: agents.a.kind: "" is not a value it can have; write openai, a2a, builtin, conversation or exec`}},
		{"text as key", "keys: [sk-canary]", []string{"1:8: keys[0]: here stands text where keys and values must stand; write keys and values"}},
		{"agent without kind", "agents: {a: {}}", []string{"1:10: agents.a.kind: the key is missing; add kind: openai, a2a, builtin, conversation or exec"}},
		{"agent that is nothing", "agents: {a: }", []string{"1:10: agents.a: it has no value; write its keys below it, or remove it"}},
		{"program without a name", "agents: {a: {kind: exec, command: []}}", []string{"1:26: agents.a.command: the program has no name; write it as a list: the program, then its arguments"}},
		{"lines of what", "agents: {a: {kind: exec, command: [x], output: jsonl}}", []string{"1:48: agents.a.output: nothing says what in the lines is the answer; name it with fields: {text: PATH}, or with result"}},
		{"fields of text", "agents: {a: {kind: exec, command: [x], fields: {text: a}}}", []string{"1:40: agents.a.fields: fields are of output jsonl; remove them, or write output: jsonl"}},
		{"worker for all", "agents: {a: {kind: exec, command: [x], mode: worker}}", []string{"1:46: agents.a.mode: a worker belongs to one conversation of one payer, and is never shared; add affinity: conversation, or remove mode"}},
		{"worker with arguments", "agents: {a: {kind: exec, command: [x], mode: worker, affinity: conversation, input: arg}}", []string{"1:46: agents.a.mode: a worker has an input and an output of its own; remove input and output, or mode"}},
		{"session for all", "agents: {a: {kind: exec, command: [x], session: {next: ['{session}']}}}", []string{"1:40: agents.a.session: a session belongs to one conversation of one payer, and is never shared; add affinity: conversation, or remove session"}},
		{"session of a worker", "agents: {a: {kind: exec, command: [x], affinity: conversation, mode: worker, session: {next: ['{session}']}}}", []string{"1:78: agents.a.session: a worker keeps its conversation by itself; remove session, or mode"}},
		{"session that is not told", "agents: {a: {kind: exec, command: [x], affinity: conversation, session: {first: ['{session}']}}}", []string{"1:64: agents.a.session.next: the turns after the first one are not told their session; name it, such as next: [--resume, \"{session}\"]"}},
		{"variable of the bus", "agents: {a: {kind: exec, command: [x], env: [AGENTBUS_URL]}}", []string{"1:46: agents.a.env[0]: the bus sets this variable itself; remove it"}},
		{"no directory to share", "agents: {a: {kind: exec, command: [x], share_dir: true}}", []string{"1:51: agents.a.share_dir: there is no directory to share; name it with dir, or remove share_dir"}},
		{"a2a", "agents: {a: {kind: a2a}}", []string{"1:10: agents.a.url: an agent of kind a2a needs this key; add url: http://127.0.0.1:9001/v1"}},
		{"sign in a price", "agents: {a: {kind: builtin, builtin: echo, price: {call: -1}}}", []string{`1:58: agents.a.price.call: "-1" is not an amount of dollars; write a decimal such as 0.15, without sign, exponent or currency`}},
		{"exponent in a price", "agents: {a: {kind: builtin, builtin: echo, price: {call: 1e-3}}}", []string{`1:58: agents.a.price.call: "1e-3" is not an amount of dollars; write a decimal such as 0.15, without sign, exponent or currency`}},
		{"several at once", "listn: a\nlimits: {max_depth: x}\nkeys: 4\n", []string{
			"1:1: listn: there is no such key; did you mean listen?",
			"2:21: limits.max_depth: here stands text where a whole number must stand; write a whole number",
			"3:7: keys: here stands a number where a list must stand; write a list",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := source(map[string]string{"SET": "secret"})
			if tt.want == nil {
				tt.want = []string{"1:22: tools.default[0]: aliases are not read; write the value out"}
			}
			for i := range tt.want {
				tt.want[i] = "agentbus.yaml:" + tt.want[i]
			}
			if diff := cmp.Diff(tt.want, faults(t, tt.text, src)); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNotYAML(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, place string }{
		{"a: [", "agentbus.yaml:1:1: "},
		{"listen: x\n  store: y\n", "agentbus.yaml:2:3: "},
		{"listen: \"x\n", "agentbus.yaml:2:1: "},
		{"a: *nobody", "agentbus.yaml:1:1: "},
		{"\x00", "agentbus.yaml:1:1: "},
		{"a: \xff", "agentbus.yaml:1:1: "},
	} {
		got := faults(t, tt.text, source(nil))
		if len(got) != 1 || !strings.HasPrefix(got[0], tt.place+"this is not YAML: ") {
			t.Errorf("%q: %q, want a fault at %s", tt.text, got, tt.place)
		}
	}
	if got := faults(t, "agents:\n\ta: {}\n", source(nil)); len(got) != 1 || !strings.HasSuffix(got[0], "; indent with spaces: YAML takes no tabs there") {
		t.Errorf("a tab: %q", got)
	}
	if got := faults(t, "listen: 127.0.0.1:1\nlimits: {max_depth: ${N}}\n", source(nil)); len(got) != 1 || !strings.HasSuffix(got[0], `put a variable in quotes, such as "${NAME}"`) {
		t.Errorf("a variable in braces: %q", got)
	}
}

func TestEmptySectionsAreDefaults(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "null", "keys:\nagents:\nlimits:\nstore: ~\n", "agents: {}\nkeys: []\n", "\xef\xbb\xbflisten: 127.0.0.1:8080\n"} {
		c, warnings := parse(t, text, source(nil))
		if len(warnings) > 0 || c.Listen != "127.0.0.1:8080" || c.Limits.MaxDepth != 4 {
			t.Errorf("%q: %v %+v", text, warnings, c)
		}
	}
}

func TestVariablesInValues(t *testing.T) {
	t.Parallel()
	src := source(map[string]string{"DEPTH": "9", "HOST": "h.example.com", "ON": "true", "WAIT": "2m", "EMPTY": "", "PRICE": "0.5", "KIND": "builtin"})
	c, _ := parse(t, `
limits: {max_depth: "${DEPTH}"}
strict_http: ${ON}
drain_timeout: ${WAIT}
public_url: https://${HOST}${EMPTY}/$x$
agents: {a: {kind: "${KIND}", builtin: echo, price: {call: "${PRICE}"}}}
`, src)
	if c.Limits.MaxDepth != 9 || !c.StrictHTTP || c.PublicURL != "https://h.example.com/$x$" || c.DrainTimeout.Minutes() != 2 {
		t.Errorf("%+v", c)
	}
	if got := c.Agents["a"].Price.Call; got != 500_000 {
		t.Errorf("price = %d", got)
	}
	// What a variable holds is never YAML, and never in a message.
	src = source(map[string]string{"X": "canary, mode: refuse"})
	want := []string{`agentbus.yaml:1:20: forwarding.mode: "${X}" is not a value it can have; write ignore or refuse`}
	if diff := cmp.Diff(want, faults(t, `forwarding: {mode: "${X}"}`, src)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// Every key of the specification is accepted; those that this version does not
// act on are named, never ignored in silence.
func TestKeysOfLaterVersions(t *testing.T) {
	t.Parallel()
	_, warnings := parse(t, `
budgets: [{payer: user-123, period: day, usd: 5.00, mode: strict}]
telemetry: {otlp: ""}
resolver: {domains: [], allow_hosts: []}
a2a: {default_agent: "", compat: "", push: deny}
agents:
  a: {kind: builtin, builtin: echo, detach: off}
  b: {kind: builtin, builtin: eliza, manifest: x}
conversations:
  c: {participants: [{agent: a, harness_role: r, sharing: shared}, {agent: b}]}
`, source(nil))
	want := map[string]string{ // by key, what is said to hold in its place
		"agents.b.manifest":                            "its toolAllowlist included", // E27: nobody believes that it forbids
		"conversations.c.participants[0].harness_role": "no role allows or forbids a tool",
		"conversations.c.participants[0].sharing":      "share nothing else",
	}
	got := map[string]string{}
	for _, w := range warnings {
		got[w.Key] = w.String()
		if text := want[w.Key]; text != "" && strings.Contains(w.String(), ": this version reads the key and does not act on it; ") && strings.Contains(w.String(), text) {
			got[w.Key] = text
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
