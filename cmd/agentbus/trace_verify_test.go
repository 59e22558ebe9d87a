package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/internal/require"
)

// C16: hops that are signed across two buses prove, on each, who called whom and
// who paid; the second has verified what the first has signed. A store in which
// a hop was changed is told, and where.
func TestTraceVerifyAcrossBuses(t *testing.T) {
	t.Parallel()
	first, second := require.Address(t), require.Address(t)
	signs := func(at, more string) string {
		return fmt.Sprintf("trust: {issuer: 'http://%s', key_env: KEY, signed_hops: true%s}\nresolver: {allow_hosts: ['127.0.0.1:%s']}\n", at, more, first[strings.LastIndexByte(first, ':')+1:])
	}
	file := func(text string) (path string) {
		path = filepath.Join(t.TempDir(), "agentbus.yaml")
		save(t, path, fmt.Sprintf("limits: {max_depth: 20}\nadmin: {listen: '127.0.0.1:0'}\nstore: {url: %q}\n", "sqlite:"+filepath.Join(filepath.Dir(path), "bus.db"))+text)
		return path
	}
	below := file(signs(second, ", buses: [{issuer: 'http://"+first+"', caller: first}]") + `
keys: [{id: first, secret_env: FIRST, inter_agent: true}, {id: alice, secret_env: ALICE}]
agents:
  echo: {kind: builtin, builtin: echo}
  leaf: {kind: builtin, builtin: echo}
  talk: {kind: conversation, conversation: talk}
conversations:
  talk: {participants: [{agent: echo}, {agent: leaf}], max_turns: 2}
`)
	above := file(signs(first, "") + `
keys: [{id: alice, secret_env: ALICE}]
agents:
  team: {kind: openai, url: 'http://` + second + `/v1', model: talk, api_key_env: FIRST}
  echo: {kind: builtin, builtin: echo}
  talk: {kind: conversation, conversation: talk}
conversations:
  talk: {participants: [{agent: team}, {agent: echo}], max_turns: 2}
`)
	env := func(at, key string) map[string]string {
		return map[string]string{"AGENTBUS_LISTEN": at, "ALICE": aliceKey, "FIRST": "first-secret-0123456789", "KEY": strings.Repeat(key, 32)}
	}
	serving(t, below, env(second, "a1"), "--quiet")
	bus := serving(t, above, env(first, "b2"), "--quiet")
	status, _, body := mustPost(t, bus.url, aliceKey, `{"model":"talk","messages":[{"role":"user","content":"hello"}]}`, turnHeader("run", "me", 0))
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	verify := func(path, at, key string, args ...string) (code int, stdout, stderr string) {
		var out, complaint strings.Builder
		code = run(context.WithoutCancel(t.Context()), append([]string{"trace", "verify", "run", "--config", path}, args...), strings.NewReader(""), &out, &complaint, lookup(env(at, key)))
		return code, out.String(), complaint.String()
	}
	for _, b := range []struct{ path, at, key, want string }{
		{above, first, "b2", `(?s)^HOP +CALLER +AGENT +PAYER\n1 of 4 +conversation:talk +team +alice\n1 of 4 +conversation:talk +echo +alice\n2 signed hops of run run in order\n$`},
		{below, second, "a1", `(?s)^HOP +CALLER +AGENT +PAYER\n.*2 of 4 +conversation:talk +echo +alice\n.*signed hops of run run in order\n`},
	} {
		if code, stdout, stderr := verify(b.path, b.at, b.key); code != 0 || !regexp.MustCompile(b.want).MatchString(stdout) {
			t.Errorf("%d\n%s%s", code, stdout, stderr)
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(filepath.Dir(above), "bus.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "UPDATE hop_tokens SET token = substr(token, 1, length(token) - 8) || 'AAAAAAAA' WHERE rowid = (SELECT max(rowid) FROM hop_tokens)"); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := verify(above, first, "b2")
	if code != int(exitFailed) || !strings.Contains(stderr, "the signed hops of run run are not in order") || !strings.Contains(stderr, "next: do not believe") || stdout != "" {
		t.Errorf("changed: %d\n%s%s", code, stdout, stderr)
	}
}
