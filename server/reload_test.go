package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// A fileBus is a bus that serves on a socket with a configuration in a file.
type fileBus struct {
	*server.Server
	t      *testing.T
	path   string
	head   string // of the file, in every version of it
	url    string
	client *http.Client
}

var reloadEnv = map[string]string{"ALICE": "alice-secret", "BOB": "bob-secret"}

// serveFile serves the configuration in yaml until the test ends.
func serveFile(t *testing.T, yaml string) *fileBus {
	t.Helper()
	dir := t.TempDir()
	b := &fileBus{t: t, path: filepath.Join(dir, "agentbus.yaml"), head: fmt.Sprintf("store: {url: %q}\nlisten: 127.0.0.1:0\n", "sqlite:"+sqlitetest.Prepare(t, filepath.Join(dir, "bus.db")))}
	b.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	b.write(yaml)
	load := func() (*config.Config, []config.Warning, error) {
		return config.Load(config.Source{Path: b.path, Env: func(name string) (string, bool) { v, ok := reloadEnv[name]; return v, ok }})
	}
	c, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if b.Server, err = server.New(t.Context(), server.Config{Config: c, Load: load, Supervisor: supervisor(t)}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.url = "http://" + l.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		closed(t, b.Server)
	})
	return b
}

// write replaces the file as an editor does: at once.
func (b *fileBus) write(yaml string) {
	b.t.Helper()
	if err := os.WriteFile(b.path+".new", []byte(b.head+yaml), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(b.path+".new", b.path); err != nil {
		b.t.Fatal(err)
	}
}

// post asks an agent with a key, and returns the status and the answer.
func (b *fileBus) post(key, agent, run string) (int, string) {
	r, err := http.NewRequest(http.MethodPost, b.url+"/v1/chat/completions", strings.NewReader(`{"model":"`+agent+`","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set(agentbus.HeaderRunID, run)
	r.Header.Set(agentbus.HeaderTurnID, run+".t0."+agent)
	return b.do(r)
}

func (b *fileBus) do(r *http.Request) (int, string) {
	resp, err := b.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

func (b *fileBus) get(path string) (int, string) {
	r, err := http.NewRequest(http.MethodGet, b.url+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	return b.do(r)
}

const (
	aliceAndBob = "keys: [{id: alice, secret_env: ALICE}, {id: bob, secret_env: BOB}]\n"
	onlyAlice   = "keys: [{id: alice, secret_env: ALICE}]\n"
	oneEcho     = "agents: {echo: {kind: builtin, builtin: echo, price: {call: 0.001}}}\n"
)

// TestReload: G30, agents, prices, keys and limits change while the bus serves; a
// fault changes nothing and is told; what cannot change waits.
func TestReload(t *testing.T) {
	t.Parallel()
	b := serveFile(t, aliceAndBob+oneEcho)
	reload := func(yaml string, fails bool) {
		t.Helper()
		b.write(yaml)
		if err := b.Reload(t.Context()); (err != nil) != fails {
			t.Fatal(err)
		}
	}
	expect := func(what string, want int, key, agent, run string) {
		t.Helper()
		if got, body := b.post(key, agent, run); got != want {
			t.Errorf("%s: %d %s, want %d", what, got, body, want)
		}
	}
	ready := func(want ...string) {
		t.Helper()
		var status int
		var body string
		soon(t, "the store", func() bool { // a busy machine may take longer for a write than /readyz waits
			status, body = b.get("/readyz")
			return status != http.StatusServiceUnavailable
		})
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("readyz says %s, want %q in it", body, w)
			}
		}
		if status != http.StatusOK || len(want) == 0 && strings.Contains(body, "degraded") {
			t.Errorf("readyz says %d %s", status, body)
		}
	}
	expect("bob before", http.StatusOK, "bob-secret", "echo", "r1")
	expect("an agent that is not there yet", http.StatusNotFound, "alice-secret", "eliza", "r2")
	ready()

	reload(onlyAlice+"agents: {echo: {kind: builtin, builtin: echo, aliases: [parrot], price: {call: 0.5}}, eliza: {kind: builtin, builtin: eliza}}\nlimits: {max_depth: 1}\n", false)
	expect("a revoked key", http.StatusUnauthorized, "bob-secret", "echo", "r3")
	expect("a new agent", http.StatusOK, "alice-secret", "eliza", "r3")
	expect("a new price, by a new alias", http.StatusOK, "alice-secret", "parrot", "r4")
	if diff := cmp.Diff([]row{{"echo", 0, "alice", 500_000}}, rows(t, b.Server, "r4")); diff != "" {
		t.Errorf("the new price (-want +got):\n%s", diff)
	}
	ready()

	reload("agents: {echo: {kind: nonsense, builtin: canary}}\n", true)
	expect("the one before stays", http.StatusOK, "alice-secret", "eliza", "r5")
	ready(`"degraded"`, " and has 2 faults: ", "agentbus config check")
	if _, body := b.get("/readyz"); strings.Contains(body, "canary") || strings.Contains(body, b.path) {
		t.Errorf("readyz tells what is in the file: %s", body)
	}
	if last, tried := b.LastReload(); !tried || last.Err == nil || !strings.Contains(last.Err.Error(), "agents.echo.kind") {
		t.Errorf("the last reload: %+v", last)
	}
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	if err := b.Reload(t.Context()); err == nil {
		t.Error("a missing file was taken for all defaults")
	}
	ready(" and has a fault: ")

	reload("listen: 127.0.0.1:1\n"+aliceAndBob+oneEcho, true) // twice
	b.head = strings.Replace(b.head, "127.0.0.1:0", "127.0.0.1:1", 1)
	reload("telemetry: {otlp: 'http://127.0.0.1:1'}\n"+aliceAndBob+oneEcho, false)
	expect("the rest is in force", http.StatusOK, "bob-secret", "echo", "r6")
	ready("these changes wait for a restart: listen, telemetry.otlp")
	if _, body := b.scrape(); !strings.Contains(body, "\nagentbus_config_current 0\n") {
		t.Error("the metrics do not tell that a restart is due")
	}
	b.head = strings.Replace(b.head, "127.0.0.1:1", "127.0.0.1:0", 1)
	reload(aliceAndBob+oneEcho, false)
	ready()
}

// scrape reads the figures.
func (b *fileBus) scrape() (int, string) {
	srv := &http.Server{Handler: b.Metrics(), ReadHeaderTimeout: time.Minute}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }()
	defer func() { _ = srv.Close() }()
	r, err := http.NewRequest(http.MethodGet, "http://"+l.Addr().String(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.do(r)
}

// scrapeUntil returns the figures once they hold every line: a call is counted
// behind its answer.
func (b *fileBus) scrapeUntil(lines ...string) (text string) {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		_, text = b.scrape()
		if !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(text, "\n"+line+"\n") }) {
			return text
		}
	}
	b.t.Fatalf("%q are not all in\n%s", lines, text)
	return ""
}

// TestReloadWithinAConversation: G30, a conversation that is under way goes on
// with the agents it began with.
func TestReloadWithinAConversation(t *testing.T) {
	t.Parallel()
	const agents = "agents: {a: {kind: builtin, builtin: echo, price: {call: 0.01}}, b: {kind: builtin, builtin: eliza, price: {call: 0.01}}}\n"
	const chat = "conversations: {chat: {participants: [{agent: a}, {agent: b}], max_turns: 4}}\n"
	b := serveFile(t, agents+chat)
	var run agentbus.RunID
	turns := 0
	for e, err := range b.Converse(t.Context(), server.Start{Conversation: "chat", Seed: "go"}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Turn != nil {
			turns++
			run = e.Turn.Run
			b.write("agents: {other: {kind: builtin, builtin: echo}}\n")
			if err := b.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []row{{"a", 1, "local", 10_000}, {"b", 1, "local", 10_000}, {"a", 1, "local", 10_000}, {"b", 1, "local", 10_000}}
	if diff := cmp.Diff(want, rows(t, b.Server, run)); diff != "" || turns == 0 {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestReloadUnderLoad: G30, a hundred reloads lose no call and mix no two
// configurations: whoever is served is served by one of them, whole.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	b := serveFile(t, aliceAndBob+oneEcho)
	var n atomic.Int64
	var callers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				run := fmt.Sprintf("load-%d", n.Add(1))
				if status, body := b.post("alice-secret", "echo", run); status != http.StatusOK {
					t.Errorf("%s: %d %s", run, status, body)
					return
				}
			}
		})
	}
	for i := range 100 {
		yaml := aliceAndBob + oneEcho
		if i%2 == 0 {
			yaml = onlyAlice + "agents: {echo: {kind: builtin, builtin: echo, price: {call: 0.002}}, more: {kind: builtin, builtin: eliza}}\n"
		}
		if i%10 == 9 {
			yaml = "agents: {echo: {kind: nonsense}}\n"
		}
		b.write(yaml)
		if err := b.Reload(t.Context()); (err != nil) != (i%10 == 9) {
			t.Error(err)
		}
	}
	stop()
	callers.Wait()
	for i := range n.Load() {
		got := rows(t, b.Server, agentbus.RunID(fmt.Sprintf("load-%d", i+1)))
		if len(got) != 1 || got[0].Cost != 1000 && got[0].Cost != 2000 {
			t.Errorf("call %d was charged %v", i+1, got)
		}
	}
}

// TestReloadWhenTheFileChanges: G30, nobody has to say so.
func TestReloadWhenTheFileChanges(t *testing.T) {
	t.Parallel()
	b := serveFile(t, onlyAlice+oneEcho)
	b.write(aliceAndBob + oneEcho)
	deadline := time.Now().Add(time.Minute)
	for i := 0; ; i++ {
		status, body := b.post("bob-secret", "echo", fmt.Sprintf("r%d", i))
		if status == http.StatusOK {
			return
		}
		if status != http.StatusUnauthorized || time.Now().After(deadline) {
			t.Fatalf("%d %s", status, body)
		}
		<-time.After(20 * time.Millisecond)
	}
}
