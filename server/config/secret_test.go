package config_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/server/config"
)

// P19: no secret is in anything that is printed of a configuration.
func TestP19SecretsArePrintedNowhere(t *testing.T) {
	t.Parallel()
	const canary = "canary"
	src := config.Source{
		Env:      env(map[string]string{"K": canary + "-env", "A": canary + "-agent", "H": canary + "-header"}),
		ReadFile: files(map[string]string{"/k": canary + "-file", "/a": canary + "-agentfile", "/i": strings.Repeat("canary-i", 4)}),
		Dev:      true,
	}
	c, _ := parse(t, `
install_key_file: /i
keys: [{id: a, secret_env: K}, {id: b, secret_file: /k}, {id: c, secret: canary-inline}]
agents:
  x: {kind: openai, url: "https://h/", api_key_env: A, headers: {x-key: "${H}", x-inline: canary-inline}}
  y: {kind: openai, url: "https://h/", api_key_file: /a}
`, src)
	for i, want := range []string{"canary-env", "canary-file", "canary-inline"} {
		if got := c.Keys[i].Secret.Reveal(); got != want {
			t.Errorf("secret %d = %q, want %q", i, got, want)
		}
	}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := json.Marshal(c.Settings())
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).InfoContext(t.Context(), "config", slog.Any("config", c), slog.Any("keys", c.Keys))
	printed := map[string]string{"JSON": string(asJSON), "explain": config.Explain(c), "settings": string(settings), "slog": log.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed[verb] = fmt.Sprintf(verb, *c) + fmt.Sprintf(verb, c)
	}
	for name, text := range printed {
		if strings.Contains(text, canary) || strings.Contains(text, fmt.Sprintf("%x", canary)) {
			t.Errorf("%s shows a secret:\n%s", name, text)
		}
	}
	if !strings.Contains(config.Explain(c), "agents.x.headers.x-key: [redacted]") {
		t.Errorf("explain does not say that there is a secret:\n%s", config.Explain(c))
	}
}

func TestSecretsThatAreMissingOrUnfit(t *testing.T) {
	t.Parallel()
	src := config.Source{
		Env:      env(map[string]string{"EMPTY": "", "SPACE": "canary with space", "LINE": "canary\nx", "UMLAUT": "canaryä", "OK": "canary-ok"}),
		ReadFile: files(map[string]string{"/empty": "\n", "/two": "canary\ncanary", "/ok": "canary-file\r\n", "/short": "canary"}),
	}
	tests := []struct{ text, want string }{
		{"keys: [{id: a, secret_env: NOPE}]", "1:28: keys[0].secret_env: the environment variable NOPE is not set or holds nothing; put the secret into it"},
		{"keys: [{id: a, secret_env: EMPTY}]", "1:28: keys[0].secret_env: the environment variable EMPTY is not set or holds nothing; put the secret into it"},
		{"keys: [{id: a, secret_env: SPACE}]", "1:28: keys[0].secret_env: the environment variable SPACE holds a space or a character that no header can carry; put only the secret into it, on one line"},
		{"keys: [{id: a, secret_env: LINE}]", "1:28: keys[0].secret_env: the environment variable LINE holds a space or a character that no header can carry; put only the secret into it, on one line"},
		{"keys: [{id: a, secret_env: UMLAUT}]", "1:28: keys[0].secret_env: the environment variable UMLAUT holds a space or a character that no header can carry; put only the secret into it, on one line"},
		{"keys: [{id: a, secret_env: sk-canary}]", "1:28: keys[0].secret_env: this is not the name of an environment variable; write the name of the variable that holds the secret, never the secret"},
		{"keys: [{id: a, secret_file: /nope}]", "1:29: keys[0].secret_file: the file of the secret cannot be read: file does not exist; write the secret into it, readable by this user only"},
		{"keys: [{id: a, secret_file: /empty}]", "1:29: keys[0].secret_file: the file is not set or holds nothing; put the secret into it"},
		{"keys: [{id: a, secret_file: /two}]", "1:29: keys[0].secret_file: the file holds a space or a character that no header can carry; put only the secret into it, on one line"},
		{"store: {url: 'postgres://h/d', password_env: LINE}", "1:46: store.password_env: the environment variable LINE holds a line break or another control character; put only the secret into it, on one line"},
		{"keys: [{id: a, secret_env: OK, secret_file: /ok}]", "1:45: keys[0].secret_file: the secret has two sources, secret_env and secret_file; remove one of them"},
		{"keys: [{id: a, secret: canary}]", "1:24: keys[0].secret: a secret in the file is refused; put it into a variable and name that with secret_env, or into a file and name that with secret_file; --dev allows it here"},
		{"keys: [{id: a, secret: 4711}]", "1:24: keys[0].secret: here stands a number where text must stand; put it in quotes"},
		{"agents: {a: {kind: openai, url: 'https://h/', api_key_env: NOPE}}", "1:60: agents.a.api_key_env: the environment variable NOPE is not set or holds nothing; put the secret into it"},
		{"agents: {a: {kind: openai, url: 'https://h/', api_key: canary}}", "1:47: agents.a.api_key: there is no such key; did you mean api_key_env?"},
		{"install_key_file: /nope", "1:19: install_key_file: the file cannot be read: file does not exist; write 32 random bytes into it, readable by this user only"},
		{"install_key_file: /short", "1:19: install_key_file: the file holds neither 32 bytes nor 64 hex digits; make it with: openssl rand -hex 32"},
		{"sealing: {key_file: /short}", "1:21: sealing.key_file: the file holds neither 32 bytes nor 64 hex digits; make it with: openssl rand -hex 32"},
		{"sealing: {key_env: OK}", "1:20: sealing.key_env: the environment variable OK does not hold 64 hex digits; make them with: openssl rand -hex 32"},
		{"sealing: {key_env: sk-canary}", "1:20: sealing.key_env: this is not the name of an environment variable; write the name of the variable that holds the key, never the key"},
		{"sealing: {key_env: OK, key_file: /ok}", "1:34: sealing.key_file: the key has two sources, key_env and key_file; remove one of them"},
	}
	for _, tt := range tests {
		got := faults(t, tt.text, src)
		if diff := cmp.Diff([]string{"agentbus.yaml:" + tt.want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, diff)
		}
		if got := strings.Join(got, ""); strings.Contains(got, "canary") {
			t.Errorf("%s: the fault shows the secret: %s", tt.text, got)
		}
	}
}

// A password that no header carries as it is may be a sentence, in any language.
func TestPassphrases(t *testing.T) {
	t.Parallel()
	src := config.Source{Env: env(map[string]string{"SENTENCE": "Öfter mal was Neues"}), ReadFile: files(map[string]string{"/sentence": "two  words\n"})}
	c, _ := parse(t, `
store: {url: "postgres://bus@db/bus", password_env: SENTENCE}
auth: {introspection: {url: "https://pay.example.com/introspect", client_id: bus, client_secret_file: /sentence, prefixes: [x402_]}}
`, src)
	if got := c.Store.Password.Reveal(); got != "Öfter mal was Neues" {
		t.Errorf("the password of the store is %q", got)
	}
	if got := c.Auth.Introspection.ClientSecret.Reveal(); got != "two  words" {
		t.Errorf("the secret of the client is %q", got)
	}
}

// Who opens the store and serves nobody needs no secret, and is still told what
// can be no secret.
func TestSecretsOfWhoOpensTheStoreOnly(t *testing.T) {
	t.Parallel()
	src := config.Source{Env: env(map[string]string{"OK": "canary-ok", "SPACE": "a b"}), ReadFile: files(nil), StoreOnly: true}
	c, _ := parse(t, `
admin: {token_env: NOPE}
keys: [{id: a, secret_env: NOPE}, {id: b, secret_file: /nope}, {id: c, secret_env: OK}]
agents: {x: {kind: openai, url: "https://h/", api_key_env: NOPE}}
`, src)
	if len(c.Keys) != 3 || !c.Keys[0].Secret.IsZero() || !c.Keys[1].Secret.IsZero() || c.Keys[2].Secret.Reveal() != "canary-ok" {
		t.Errorf("%+v", c.Keys)
	}
	if got := faults(t, "keys: [{id: a, secret_env: SPACE}, {id: b}]", src); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

func TestInlineSecretUnderDev(t *testing.T) {
	t.Parallel()
	src := source(map[string]string{"OK": "x"})
	src.Dev = true
	c, _ := parse(t, "keys: [{id: a, secret: canary}]", src)
	if got := c.Keys[0].Secret.Reveal(); got != "canary" {
		t.Errorf("secret = %q", got)
	}
	for text, want := range map[string]string{
		"keys: [{id: a, secret: canary, secret_env: OK}]": "agentbus.yaml:1:24: keys[0].secret: the secret has two sources; keep one of secret, secret_env and secret_file",
		"keys: [{id: a, secret: can ary}]":                "agentbus.yaml:1:24: keys[0].secret: the value holds a character that it cannot have in a header; use visible ASCII characters",
	} {
		if diff := cmp.Diff([]string{want}, faults(t, text, src)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestSealingKey(t *testing.T) { // R18
	t.Parallel()
	key := strings.Repeat("k", 32)
	src := config.Source{Env: env(map[string]string{"HEX": strings.Repeat("6b", 32)}), ReadFile: files(map[string]string{"/raw": key})}
	for _, text := range []string{"sealing: {key_env: HEX}", "sealing: {key_file: /raw}"} {
		if c, _ := parse(t, text, src); c.Sealing.Key.Reveal() != key {
			t.Errorf("%s: the key is %q", text, c.Sealing.Key.Reveal())
		}
	}
}

func TestInstallKeyOfRawBytes(t *testing.T) { // P19
	t.Parallel()
	raw := "\x00\n" + strings.Repeat("\xff", 30)
	src := config.Source{Env: env(nil), ReadFile: files(map[string]string{"/i": raw})}
	if c, _ := parse(t, "install_key_file: /i", src); c.InstallKey.Reveal() != raw {
		t.Errorf("install key = %q", c.InstallKey.Reveal())
	}
}
