package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

// G30: a serving process takes over what its file says now, on SIGHUP and when
// the file changes; a fault changes nothing and is told; a live stream goes on.
func TestServeReloads(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "slow", 50*time.Millisecond)
	a.begun = make(chan agentbus.TurnID, 1)
	path := configure(t, slowBus(a))
	p, url := serveProcess(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "agents:")
	const one = "agents: {echo: {kind: builtin, builtin: echo, price: {call: 0.25}}}\n"
	const alice = "keys: [{id: alice, secret_env: ALICE}]\n"

	live := postLater(t.Context(), url, askSlow, turnHeader("live", "slow", 0))
	<-a.begun
	save(t, path, head+one+alice)
	hangUp(t, p)
	eventually(t, "the new agent", func() bool {
		status, _, _, err := post(t.Context(), url, aliceKey, hello, nil)
		return err == nil && status == http.StatusOK
	})
	mustPost(t, url, aliceKey, hello, turnHeader("r1", "echo", 0))
	if got := <-live; got.status != http.StatusOK || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("the live stream got %d %s %v", got.status, got.body, got.err)
	}
	if status, _, body := mustPost(t, url, aliceKey, askSlow, nil); status != http.StatusNotFound {
		t.Errorf("the agent that is gone answers %d %s", status, body)
	}

	save(t, path, head+"agents: {echo: {kind: nonsense}}\n"+alice)
	hangUp(t, p)
	eventually(t, "a word of the fault", func() bool { return strings.Contains(ready(t, url), "degraded") })
	if status, _, body := mustPost(t, url, aliceKey, hello, turnHeader("r2", "echo", 0)); status != http.StatusOK {
		t.Errorf("with a faulty file: %d %s", status, body)
	}

	for what, broken := range map[string]func(){
		"empty": func() { save(t, path, "\n") },
		"a pipe": func() {
			_ = os.Remove(path)
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Error(err)
			}
		},
	} {
		save(t, path, head+one+alice)
		hangUp(t, p)
		eventually(t, "a file without a fault", func() bool { return !strings.Contains(ready(t, url), "degraded") })
		broken() // it is not read as all defaults, nor waited for
		hangUp(t, p)
		eventually(t, "a word of what is "+what, func() bool { return strings.Contains(ready(t, url), "degraded") })
		if status, _, body := mustPost(t, url, aliceKey, hello, nil); status != http.StatusOK {
			t.Errorf("with a file that is %s: %d %s", what, status, body)
		}
		_ = os.Remove(path)
	}

	save(t, path, head+one) // alice's key is revoked; nobody says so
	eventually(t, "the key's end", func() bool {
		status, _, _, err := post(t.Context(), url, aliceKey, hello, nil)
		return err == nil && status == http.StatusUnauthorized
	})
	eventually(t, "a file without a fault", func() bool { return !strings.Contains(ready(t, url), "degraded") })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.rest()
	if code := p.end(); code != 0 || !strings.Contains(p.stderr.String(), "configuration not reloaded") || strings.Contains(p.stderr.String(), aliceKey) {
		t.Errorf("serve ended with %d: %s", code, p.stderr.String())
	}
	for _, run := range []agentbus.RunID{"r1", "r2"} {
		if calls := callsOf(t, opened(t, path, aliceEnv), run); len(calls) != 1 || calls[0].Cost != 250_000 {
			t.Errorf("%s was charged %+v", run, calls)
		}
	}
}

// G30: what came into the file while the bus serves is what must not go again.
func TestReadsAgainWhatCameSince(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agentbus.yaml")
	a := &app{globals: globals{ConfigFile: path}, env: lookup(nil), stderr: io.Discard}
	save(t, path, "# to be written\n")
	c, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	again := a.again(c, nil)
	for _, now := range []struct {
		text  string
		right bool
	}{{"\n", true}, {"agents: {echo: {kind: builtin, builtin: echo}}\n", true}, {"\n", false}, {"{}\n", true}} {
		save(t, path, now.text)
		if _, _, err := again(); (err == nil) != now.right {
			t.Errorf("%q: %v", now.text, err)
		}
	}
}

// G30: a reload that is asked for while a bus still reads its configuration ends
// nothing: it is done once it serves.
func TestReloadsWhenItServes(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := syscall.Mkfifo(secret, 0o600); err != nil {
		t.Fatal(err)
	}
	path := configure(t, "agents: {echo: {kind: builtin, builtin: echo}}\nkeys: [{id: alice, secret_file: "+secret+"}]\n")
	p := start(t, t.TempDir(), nil, "serve", "--quiet", "--config", path)
	var w *os.File
	eventually(t, "who reads the secret", func() (reads bool) {
		var err error
		w, err = os.OpenFile(secret, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	hangUp(t, p)
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	save(t, secret, "another-secret") // which only a reload reads
	if _, err := w.WriteString(aliceKey); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if !p.lines.Scan() {
		t.Fatalf("serve ended with %d: %s", p.end(), p.stderr.String())
	}
	url := address(p.lines.Text())
	eventually(t, "the new secret", func() bool {
		status, _, _, err := post(t.Context(), url, "another-secret", hello, nil)
		return err == nil && status == http.StatusOK
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != int(exitOK) {
		t.Errorf("it ends with %d: %s", code, p.stderr.String())
	}
}

func hangUp(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// ready returns what /readyz says of a bus that is.
func ready(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	eventually(t, "a bus that is ready", func() bool { // a busy machine may take longer for a write than /readyz waits
		resp, err := httpClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if body, err = io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("readyz: %d %s %v", resp.StatusCode, body, err)
		}
		return resp.StatusCode == http.StatusOK
	})
	return string(body)
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s did not come", what)
		}
	}
}
