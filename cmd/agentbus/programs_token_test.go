package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

// B2, P19: the token of a turn makes calls of that turn, on the origin's bill,
// and nothing else; it cannot be forwarded, it never travels on, and it is worth
// nothing once the turn is over, to a job it left behind too (C8, X8).
func TestTokenOfATurn(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 16)
	upstream := newAgent(t, "upstream", 0)
	watch := upstream.Config.Handler
	upstream.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		watch.ServeHTTP(w, r)
	})
	path, env := scripted(t, "keys: [{id: relay, secret_env: RELAY, inter_agent: true}, {id: alice, secret_env: ALICE, agents: [holder, net, own]}]\n", map[string]string{
		"holder": "\necho \"I am $AGENTBUS_TOKEN\"; echo \"$AGENTBUS_TOKEN\" >&2; env >\"$log/env.new\"; mv \"$log/env.new\" \"$log/env\"; while [ ! -e \"$log/go\" ]; do sleep 0.02; done\n",
		"other":  "\ncat\n",
	})
	rewrite(t, path, "keys: [{id: alice, secret_env: ALICE}, {id: bob, secret_env: BOB}]\n", "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, path, string(text)+"  net: {kind: openai, url: '"+upstream.URL+"/v1'}\n  own: {kind: openai, url: '"+upstream.URL+"/v1', auth: passthrough}\n")
	env["RELAY"] = "relay-secret"
	dir := scriptsOf(t, path)
	var token string
	var log *bytes.Buffer
	t.Cleanup(func() { // once the bus has ended
		if log != nil && (token == "" || strings.Contains(log.String(), token)) {
			t.Errorf("the token is in the log: %s", log.String())
		}
	})
	b := serving(t, path, env)
	log = &b.stderr
	held := make(chan string, 1)
	go func() {
		_, _, body, _ := post(t.Context(), b.url, "alice-secret", `{"model":"holder","messages":[{"role":"user","content":"hello"}]}`, nil)
		held <- body
	}()
	within(t, time.Minute, "the program runs", func() bool { _, err := os.Stat(filepath.Join(dir, "env")); return err == nil })
	vars := map[string]string{}
	for _, line := range linesOf(t, filepath.Join(dir, "env")) {
		name, value, _ := strings.Cut(line, "=")
		vars[name] = value
		if strings.Contains(value, "secret") || strings.Contains(value, "canary") {
			t.Errorf("the program sees %q", line)
		}
	}
	token = vars["AGENTBUS_TOKEN"]
	run, turn := vars["AGENTBUS_RUN_ID"], vars["AGENTBUS_TURN_ID"]
	headers := func(kv ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(kv); i += 2 {
			h.Set(kv[i], kv[i+1])
		}
		return h
	}
	below := []string{agentbus.HeaderRunID, run, agentbus.HeaderParentTurnID, turn, agentbus.HeaderForwardedDepth, "2"}
	for name, tt := range map[string]struct {
		key, agent string
		header     http.Header
		status     int
		auth       string // what an agent on the network is sent as its Authorization
	}{
		"its own lineage":           {token, "net", headers(below...), 200, ""},
		"no lineage":                {token, "net", nil, 200, ""},
		"with another's credential": {token, "net", headers(append(below, agentbus.HeaderForwardedAuthorization, "Bearer relay-secret")...), 200, ""},
		"to who gets it passed":     {token, "own", headers(below...), 200, "Bearer alice-secret"},
		"beside the origin's list":  {token, "other", headers(below...), 403, ""},
		"another run":               {token, "net", headers(agentbus.HeaderRunID, "r2", agentbus.HeaderParentTurnID, turn, agentbus.HeaderForwardedDepth, "2"), 400, ""},
		"no parent":                 {token, "net", headers(agentbus.HeaderRunID, run, agentbus.HeaderForwardedDepth, "2"), 400, ""},
		"as deep as its turn":       {token, "net", headers(agentbus.HeaderRunID, run, agentbus.HeaderParentTurnID, turn, agentbus.HeaderForwardedDepth, "1"), 400, ""},
		"forwarded by a relay":      {"relay-secret", "net", headers(agentbus.HeaderForwardedAuthorization, "Bearer "+token), 401, ""},
	} {
		status, h, body, err := post(t.Context(), b.url, tt.key, `{"model":"`+tt.agent+`","messages":[{"role":"user","content":"`+name+`"}]}`, tt.header)
		if err != nil || status != tt.status {
			t.Errorf("%s: status %d, want %d: %v: %s", name, status, tt.status, err, body)
		}
		if tt.status != 200 {
			continue
		}
		if got := <-seen; got.Get(agentbus.HeaderForwardedAuthorization) != "Bearer alice-secret" || got.Get("Authorization") != tt.auth ||
			got.Get(agentbus.HeaderParentTurnID) != turn || got.Get(agentbus.HeaderRunID) != run || got.Get(agentbus.HeaderForwardedDepth) != "3" || h.Get("X-Tangle-Runid") != run {
			t.Errorf("%s: the agent was sent %v", name, got)
		}
	}
	elsewhere(t, b, path, env, token)
	onNoCommandLine(t, filepath.Join(dir, "work"), token)
	save(t, filepath.Join(dir, "go"), "")
	if body := <-held; strings.Contains(body, token) || !strings.Contains(body, "I am [redacted]") {
		t.Errorf("the answer: %s", body)
	}
	if status, _, body, err := post(t.Context(), b.url, token, `{"model":"net","messages":[{"role":"user","content":"late"}]}`, nil); status != 401 {
		t.Errorf("after the turn: status %d: %v: %s", status, err, body)
	}
	calls, err := opened(t, path, env).Calls(t.Context(), agentbus.RunID(run))
	if err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		if calls[i].Payer != "alice" {
			t.Errorf("billed to %s: %+v", calls[i].Payer, calls[i])
		}
	}
	if len(calls) != 8 { // the turn, four calls, and the three refusals that name its run
		t.Errorf("%d calls on the run", len(calls))
	}
}

func onNoCommandLine(t *testing.T, dir, token string) {
	t.Helper()
	for _, line := range below(t, dir) {
		if strings.Contains(line, token) {
			t.Errorf("a command line: %s", line)
		}
	}
}

// elsewhere checks that the token of a turn is worth nothing but for calls of
// agents on its bus, and that the bus has not written it anywhere.
func elsewhere(t *testing.T, b *busProcess, path string, env map[string]string, token string) {
	t.Helper()
	for _, url := range []string{b.admin + "/admin/v1/runs", b.admin + "/admin/v1/keys", b.admin + "/metrics", b.url + "/v1/runs"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := httpClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode == http.StatusOK {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, agents, _ := strings.Cut(string(text), "keys:")
	second := configure(t, "keys:"+agents)
	if status, _, body, err := post(t.Context(), serving(t, second, env).url, token, `{"model":"net","messages":[{"role":"user","content":"x"}]}`, nil); status != http.StatusUnauthorized {
		t.Errorf("on another bus: %d, %v, %s", status, err, body)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "bus.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if stored, err := os.ReadFile(file); err != nil || bytes.Contains(stored, []byte(token)) {
			t.Errorf("%s holds the token, %v", file, err)
		}
	}
}

// B2, G20: agentbus call, outside of a program and with what its environment
// can be wrong about.
func TestCall(t *testing.T) {
	t.Parallel()
	path, env := scripted(t, "limits: {max_depth: 4}\n", map[string]string{
		"say": "\necho x >>\"$log/started\"; printf 'you said: '; cat\n", "fail": "\necho oops >&2; exit 1\n",
		"half":  "\necho half of it; echo oops >&2; exit 1\n",
		"quote": "\necho '{\"type\":\"urn:agentbus:error:not_found\"}' >&2; exit 1\n",
	})
	dir := scriptsOf(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	save(t, path, strings.Replace(string(text), "agents:\n", "agents:\n  clear: {kind: openai, url: 'http://agents.invalid/v1'}\n", 1))
	b := serving(t, path, env)
	for name, tt := range map[string]struct {
		env          []string
		args         []string
		code         int
		stdout, says string
	}{
		"an origin":        {nil, []string{"say", "hello"}, 0, "you said: hello", ""},
		"looks like flags": {nil, []string{"say", "--", "--json"}, 0, "you said: --json", ""},
		"no agent":         {nil, []string{"nobody", "hello"}, 2, "", "nobody"},
		"fails":            {nil, []string{"fail", "hello"}, 5, "", "it said: oops"},
		"fails half way":   {nil, []string{"half", "hello"}, 5, "half of it", "agentbus: the program ended with status 1; it said: oops"},
		"no bus":           {[]string{"AGENTBUS_URL="}, []string{"say", "hello"}, 2, "", "there is no bus to call"},
		"no URL":           {[]string{"AGENTBUS_URL=x"}, []string{"say", "hello"}, 2, "", "  why: it must be http://"},
		"no scheme":        {[]string{"AGENTBUS_URL=127.0.0.1:8080"}, []string{"say", "hello"}, 2, "", "  why: it is not a URL\n"},
		"the admin's door": {[]string{"AGENTBUS_URL=" + b.admin}, []string{"say", "hello"}, 2, "", "admin listener of a bus"},
		"it quotes one":    {nil, []string{"quote", "hello"}, 5, "", "urn:agentbus:error:"},
		"no TLS there":     {[]string{"AGENTBUS_URL=https" + strings.TrimPrefix(b.url, "http")}, []string{"say", "hello"}, 5, "", "  why: it answers in plain HTTP; its URL begins with http://\n"},
		"plain HTTP":       {[]string{"AGENTBUS_URL=http://bus.invalid"}, []string{"say", "hello"}, 3, "", "--allow-plaintext"},
		"plain HTTP there": {nil, []string{"clear", "hello"}, 3, "", "set allow_plaintext: true on it"}, // P24 of the bus, not of the way to it
		"not this key":     {[]string{"AGENTBUS_TOKEN=another"}, []string{"say", "hello"}, 3, "", "set AGENTBUS_TOKEN"},
		"deep":             {[]string{"AGENTBUS_RUN_ID=r", "AGENTBUS_TURN_ID=r.t0.a", "AGENTBUS_DEPTH=2"}, []string{"say", "hello"}, 0, "you said: hello", ""},
		// Refused before anything is sent: nobody listens there.
		"too deep":      {[]string{"AGENTBUS_RUN_ID=r", "AGENTBUS_TURN_ID=r.t0.a", "AGENTBUS_DEPTH=3", "AGENTBUS_URL=http://127.0.0.1:1"}, []string{"say", "x"}, 3, "", "depth 4 reaches the limit of 4"},
		"a lower limit": {[]string{"AGENTBUS_RUN_ID=r", "AGENTBUS_TURN_ID=r.t0.a", "AGENTBUS_DEPTH=1", "AGENTBUS_MAX_DEPTH=2", "AGENTBUS_URL=http://127.0.0.1:1"}, []string{"say", "x"}, 3, "", "limit of 2"},
		"no depth":      {[]string{"AGENTBUS_RUN_ID=r", "AGENTBUS_TURN_ID=r.t0.a", "AGENTBUS_DEPTH=-1"}, []string{"say", "hello"}, 2, "", "AGENTBUS_DEPTH"},
		"no limit":      {[]string{"AGENTBUS_RUN_ID=r", "AGENTBUS_TURN_ID=r.t0.a", "AGENTBUS_MAX_DEPTH=lots"}, []string{"say", "hello"}, 2, "", "AGENTBUS_MAX_DEPTH"},
	} {
		code, stdout, stderr := program(t, dir, append([]string{"AGENTBUS_URL=" + b.url, "AGENTBUS_TOKEN=alice-secret"}, tt.env...), append([]string{"call"}, tt.args...)...)
		if code != tt.code || stdout != tt.stdout || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: %d, %q, %q, want %d, %q and %q", name, code, stdout, stderr, tt.code, tt.stdout, tt.says)
		}
	}
	// B3: the end of its standard error is in the record, and nothing is charged.
	_, header, _, err := post(t.Context(), b.url, "alice-secret", `{"model":"fail","messages":[{"role":"user","content":"hello"}]}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := opened(t, path, env).Calls(t.Context(), agentbus.RunID(header.Get("X-Tangle-Runid")))
	if err != nil || len(calls) != 1 || !strings.Contains(calls[0].Message, "it said: oops") || calls[0].State != agentbus.CallVoided || calls[0].Cost != 0 {
		t.Errorf("recorded: %+v, %v", calls, err)
	}
	before := len(linesOf(t, filepath.Join(dir, "started")))
	for range 2 { // the same key: one execution
		code, stdout, stderr := program(t, dir, []string{"AGENTBUS_URL=" + b.url, "AGENTBUS_TOKEN=alice-secret"}, "call", "--json", "--key", "k", "say", "hi")
		var reply agentbus.Reply
		if err := json.Unmarshal([]byte(stdout), &reply); err != nil || code != 0 || reply.Text != "you said: hi" {
			t.Errorf("%d, %q, %q", code, stdout, stderr)
		}
	}
	if got := len(linesOf(t, filepath.Join(dir, "started"))) - before; got != 1 {
		t.Errorf("two calls with one key were %d executions", got)
	}
}
