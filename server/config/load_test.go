package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server/config"
)

// env is an environment of the given variables.
func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// files is a file system of the given files.
func files(m map[string]string) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		text, ok := m[path]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}
}

// source is a Source that sees nothing of the machine.
func source(vars map[string]string) config.Source {
	return config.Source{Env: env(vars), ReadFile: files(nil)}
}

// parse reads text, which must be right.
func parse(t *testing.T, text string, src config.Source) (*config.Config, []config.Warning) {
	t.Helper()
	c, warnings, err := config.Parse("agentbus.yaml", []byte(text), src)
	if err != nil {
		t.Fatalf("Parse:\n%v", err)
	}
	return c, warnings
}

// faults reads text, which must be wrong, and returns what is wrong with it.
func faults(t *testing.T, text string, src config.Source) []string {
	t.Helper()
	c, _, err := config.Parse("agentbus.yaml", []byte(text), src)
	e, ok := errors.AsType[*config.Error](err)
	if !ok || c != nil {
		t.Fatalf("Parse = %v, %v, want no Config and an *Error", c, err)
	}
	if len(e.Faults) == 0 {
		t.Fatal("an Error without a fault")
	}
	return strings.Split(e.Error(), "\n")
}

func TestDefaultsWithoutAFile(t *testing.T) { // G3, P10, G14, G25, G31
	t.Parallel()
	c, warnings, err := config.Load(source(nil))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("Load = %v, %v", warnings, err)
	}
	want := &config.Config{
		Admin: config.Admin{Listen: "127.0.0.1:8081"}, Listen: "127.0.0.1:8080",
		Store: config.Store{URL: "sqlite:agentbus.db", SQLite: "agentbus.db"},
		Limits: config.Limits{
			MaxDepth: agentbus.DefaultMaxDepth, MaxWidth: 64, MaxBody: 4 << 20, MaxHeader: 64 << 10, CallTimeout: 10 * time.Minute,
			ReadHeader: 10 * time.Second, ReadBody: time.Minute, Idle: 2 * time.Minute, ResponseHeader: 2 * time.Minute,
			StreamIdle: 5 * time.Minute, BudgetWait: 5 * time.Second, InFlight: 10000, ListedRefusals: 100,
		},
		Forwarding:   config.Forwarding{Mode: config.ForwardingIgnore},
		Recording:    config.Recording{MaxBody: 64 << 10},
		Retention:    config.Retention{Replies: 24 * time.Hour, Events: 30 * 24 * time.Hour},
		Detach:       config.Detach{Max: 256, Timeout: 5 * time.Minute},
		Ledger:       config.Ledger{OnMismatch: config.MismatchRefuse},
		Workers:      config.Workers{Max: 1000, Lease: 30 * time.Second},
		Interrupts:   config.Interrupts{Timeout: 24 * time.Hour, Most: 100_000},
		Chain:        config.Chain{Cycles: config.CyclesDigest, MaxHops: 4, MaxCalls: 64, RequireFromAgents: "allow", Cue: config.CueNested},
		Lineage:      config.Lineage{LegacyParentFallback: true},
		A2A:          config.A2A{Push: config.PushDeny, Dedupe: config.DedupeOff},
		Trust:        config.Trust{KeyID: "key-1"},
		DrainTimeout: 30 * time.Second,
		StrictHTTP:   true,
		Escalation:   config.EscalationOn,
	}
	if diff := cmp.Diff(want, c, cmpopts.IgnoreUnexported(config.Config{}), cmpopts.EquateComparable(agentbus.Credential{})); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestWholeFile(t *testing.T) {
	t.Parallel()
	const text = `
listen: 127.0.0.1:0
public_url: https://bus.example.com
store: {url: "sqlite:/var/lib/bus.db"}
limits: {max_depth: 6, max_body: 1MiB, call_timeout: 1h30m}
keys:
  - {id: user-123, secret_env: USER_KEY}
  - {id: sandbox-a, secret_file: /run/a.key, inter_agent: true}
  - {id: ops, secret_env: OPS_KEY, role: admin}
agents:
  researcher:
    kind: openai
    url: http://127.0.0.1:9001/v1
    model: ${MODEL}
    api_key_env: R_KEY
    aliases: [bridge/sandbox/researcher]
    headers: {x-team: "search $${x} ${MODEL}"}
    price: {input: 0.15, cached: "0.0750001", output: 0.60, call: 1}
    max_cost_usd: 0
  echo: {kind: builtin, builtin: echo}
  panel: {kind: conversation, conversation: debate}
conversations:
  debate:
    participants: [{agent: researcher, label: Dr R}, {agent: echo, auth: agent-owned, slug: e}, {agent: echo}]
    max_turns: 6
    budget_usd: 0.50
    halt: {contains: "AGREED"}
retention: {replies: 2d}
install_key_file: /run/install
`
	src := config.Source{
		Env: env(map[string]string{"USER_KEY": "u-secret", "OPS_KEY": "o-secret", "R_KEY": "r-secret", "MODEL": "gpt-x"}),
		ReadFile: files(map[string]string{
			"/run/a.key": "a-secret\n", "/run/install": strings.Repeat("0a", 32) + "\n",
		}),
	}
	c, warnings := parse(t, text, src)
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	var secrets []string
	for _, k := range c.Keys {
		secrets = append(secrets, k.Secret.Reveal())
	}
	if diff := cmp.Diff([]string{"u-secret", "a-secret", "o-secret"}, secrets); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
	want := agentbus.Principal{ID: "sandbox-a", Role: agentbus.PrincipalUser, InterAgent: true}
	if diff := cmp.Diff(want, c.Keys[1].Principal()); diff != "" {
		t.Errorf("principal (-want +got):\n%s", diff)
	}
	r := c.Agents["researcher"]
	if got := r.Authorization.Reveal(); got != "Bearer r-secret" {
		t.Errorf("Authorization = %q", got)
	}
	if got := r.Headers["x-team"].Reveal(); got != "search ${x} gpt-x" {
		t.Errorf("header = %q", got)
	}
	price := agentbus.Price{Input: 150_000, Cached: 75_001, Output: 600_000, Call: 1_000_000}
	if got := agentbus.Price(*r.Price); got != price || r.Model != "gpt-x" || r.MaxCostUSD == nil || *r.MaxCostUSD != 0 {
		t.Errorf("researcher: price %+v, model %q, most %v", got, r.Model, r.MaxCostUSD)
	}
	if got := c.InstallKey.Reveal(); got != strings.Repeat("\n", 32) {
		t.Errorf("install key = %q", got)
	}
	budget := agentbus.Micros(500_000)
	debate := config.Conversation{
		Participants: []config.Participant{
			{Agent: "researcher", Auth: config.AuthForwardUser, Slug: "researcher", Label: "Dr R"},
			{Agent: "echo", Auth: config.AuthAgentOwned, Slug: "e", Label: "e"},
			{Agent: "echo", Auth: config.AuthForwardUser, Slug: "echo", Label: "echo"},
		},
		Plan: config.PlanRoundRobin, MaxTurns: 6, BudgetUSD: &budget, Halt: config.HaltRule{Contains: "AGREED"}, OnHalt: config.OnHaltPause,
		CallPolicy: config.DefaultCallPolicy(),
	}
	if diff := cmp.Diff(debate, c.Conversations["debate"]); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
	if c.Retention.Replies != 48*time.Hour || c.Limits.MaxDepth != 6 || c.Store.SQLite != "/var/lib/bus.db" {
		t.Errorf("retention %v, depth %d, store %q", c.Retention.Replies, c.Limits.MaxDepth, c.Store.SQLite)
	}
}

func TestWhichFile(t *testing.T) {
	t.Parallel()
	all := map[string]string{"flag.yaml": "", "env.yaml": "", "agentbus.yaml": ""}
	tests := []struct {
		name, path, env string
		files           map[string]string
		want            string
		fault           string
	}{
		{name: "the flag wins", path: "flag.yaml", env: "env.yaml", files: all, want: "flag.yaml"},
		{name: "then the environment", env: "env.yaml", files: all, want: "env.yaml"},
		{name: "then the directory", files: all, want: "agentbus.yaml"},
		{name: "else none"},
		{name: "a named file must exist", path: "x.yaml", fault: "x.yaml: there is no such file; name another with --config, or write one with agentbus init x.yaml"},
		{name: "so must one in the environment", env: "y.yaml", fault: "y.yaml: there is no such file; name another with --config, or write one with agentbus init y.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, _, err := config.Load(config.Source{Path: tt.path, Env: env(map[string]string{"AGENTBUS_CONFIG": tt.env}), ReadFile: files(tt.files)})
			if tt.fault != "" {
				if err == nil || err.Error() != tt.fault {
					t.Errorf("Load: %v, want %s", err, tt.fault)
				}
				return
			}
			if err != nil || c.Path != tt.want {
				t.Errorf("Load = %v, %v, want %q", c, err, tt.want)
			}
		})
	}
}

func TestFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	_, _, err := config.Load(config.Source{Path: t.TempDir(), Env: env(nil)})
	if err == nil || !strings.Contains(err.Error(), "cannot be read: is a directory") {
		t.Errorf("Load of a directory: %v", err)
	}
}

// P10: the flag, else the environment, else the file, else 4. A malformed value
// is an error wherever it stands.
func TestP10MaxDepth(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, flag, env, file string
		want                  int
		from, fault           string
	}{
		{name: "nothing", want: 4, from: "default"},
		{name: "file", file: "7", want: 7, from: "agentbus.yaml:1"},
		{name: "env over file", env: "6", file: "7", want: 6, from: "env CLI_BRIDGE_MAX_DEPTH"},
		{name: "flag over env", flag: "5", env: "6", file: "7", want: 5, from: "flag --max-depth"},
		{name: "text in env", env: "four", fault: `env CLI_BRIDGE_MAX_DEPTH: limits.max_depth: "four" is not a whole number; write it in digits, such as 4`},
		{name: "sign in env", env: "+4", fault: `env CLI_BRIDGE_MAX_DEPTH: limits.max_depth: "+4" is not a whole number; write it in digits, such as 4`},
		{name: "space in env", env: " 4", fault: `env CLI_BRIDGE_MAX_DEPTH: limits.max_depth: " 4" is not a whole number; write it in digits, such as 4`},
		{name: "zero in env", env: "0", fault: `env CLI_BRIDGE_MAX_DEPTH: limits.max_depth: "0" is less than 1; write 1 or more`},
		{name: "malformed env below a flag", flag: "5", env: "x", fault: `env CLI_BRIDGE_MAX_DEPTH: limits.max_depth: "x" is not a whole number; write it in digits, such as 4`},
		{name: "negative flag", flag: "-1", fault: `flag --max-depth: limits.max_depth: "-1" is less than 1; write 1 or more`},
		{name: "beyond the grammar", file: "1000000000", fault: `agentbus.yaml:1:21: limits.max_depth: "1000000000" is more than 999999999; write 999999999 or less`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src, text := source(map[string]string{"CLI_BRIDGE_MAX_DEPTH": tt.env}), ""
			if tt.flag != "" {
				src.Flags = []config.Flag{{Name: "--max-depth", Key: "limits.max_depth", Value: tt.flag}}
			}
			if tt.file != "" {
				text = "limits: {max_depth: " + tt.file + "}"
			}
			if tt.fault != "" {
				if diff := cmp.Diff([]string{tt.fault}, faults(t, text, src)); diff != "" {
					t.Errorf("faults (-want +got):\n%s", diff)
				}
				return
			}
			c, _ := parse(t, text, src)
			if from := c.Origin("limits.max_depth").String(); c.Limits.MaxDepth != tt.want || from != tt.from {
				t.Errorf("max_depth = %d from %s, want %d from %s", c.Limits.MaxDepth, from, tt.want, tt.from)
			}
		})
	}
}

func TestEnvironmentOverridesTheFile(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, "listen: 127.0.0.1:1\nstrict_http: true\n", source(map[string]string{
		"AGENTBUS_LISTEN": "127.0.0.1:2", "AGENTBUS_STORE_URL": "sqlite:x.db", "AGENTBUS_STRICT_HTTP": "false",
		"AGENTBUS_DRAIN_TIMEOUT": "1m", "AGENTBUS_PUBLIC_URL": "https://b.example.com", "AGENTBUS_ESCALATION": "off",
	}))
	if c.Escalation != config.EscalationOff || c.Listen != "127.0.0.1:2" || c.Store.SQLite != "x.db" || c.StrictHTTP || c.DrainTimeout != time.Minute || c.PublicURL != "https://b.example.com" {
		t.Errorf("%+v", c)
	}
	got := faults(t, "", source(map[string]string{
		"AGENTBUS_LISTEN": "nowhere", "AGENTBUS_STORE_URL": "bus.db", "AGENTBUS_STRICT_HTTP": "yes", "AGENTBUS_DRAIN_TIMEOUT": "30",
	}))
	want := []string{
		`env AGENTBUS_DRAIN_TIMEOUT: drain_timeout: "30" is not a duration; write a number and a unit, such as 500ms, 30s, 10m, 24h or 30d`,
		`env AGENTBUS_LISTEN: listen: this is not an address; write host:port, such as 127.0.0.1:8080`,
		`env AGENTBUS_STORE_URL: store.url: this is not the URL of a store; write sqlite:PATH, such as sqlite:agentbus.db, postgres://USER@HOST/DATABASE, or memory:`,
		`env AGENTBUS_STRICT_HTTP: strict_http: "yes" is neither true nor false; write true or false`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestUnknownFlagKey(t *testing.T) {
	t.Parallel()
	src := source(nil)
	src.Flags = []config.Flag{{Name: "--depth", Key: "limits.depth", Value: "3"}}
	if diff := cmp.Diff([]string{"flag --depth: limits.depth: there is no such key; see agentbus config explain"}, faults(t, "", src)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// G30: what held something when it was read before must hold something when it is
// read again, and be a file. What never did goes on as it is.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agentbus.yaml")
	variables := env(map[string]string{"AGENTBUS_LISTEN": "127.0.0.1:0"})
	read := func(path, text string, before *config.Config) (*config.Config, error) {
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, _, err := config.Load(config.Source{Path: path, Env: variables, Before: before})
		return c, err
	}
	for _, at := range []string{path, os.DevNull} {
		empty, err := read(at, "\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(at, "\n", empty); err != nil {
			t.Errorf("%s held nothing before: %v", at, err)
		}
	}
	full, err := read(path, "limits: {max_depth: 3}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = read(path, " \n", full); err == nil || !strings.Contains(err.Error(), "it holds nothing any more") {
		t.Errorf("an empty file: %v", err)
	}
	if _, err = read(path, "{}\n", full); err != nil {
		t.Errorf("all defaults: %v", err)
	}
}
