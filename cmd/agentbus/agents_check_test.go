package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"go.yaml.in/yaml/v3"

	"github.com/agentbus/agentbus/a2a"
)

// What is said of the cards of the public SDKs, of old ones and of odd ones, to
// the letter: go.json is as a2a-go writes cards, js.json as @a2a-js/sdk does.
func TestWhatIsSaidOfCards(t *testing.T) {
	t.Parallel()
	cards, err := filepath.Glob("testdata/cards/*.json")
	if err != nil || len(cards) == 0 {
		t.Fatal(cards, err)
	}
	at, err := url.Parse("https://agents.example.com/x/.well-known/agent-card.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range cards {
		card, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		report, ok := a2a.Examine(card, at)
		if !ok {
			t.Fatalf("%s is no card", path)
		}
		c := checkedAgent{CardReport: report}
		if report.Usable {
			c.Config = agentLines(report)
			var read map[string]any
			if err := yaml.Unmarshal([]byte(c.Config), &read); err != nil || len(read) == 0 {
				t.Errorf("%s: the lines to paste are no YAML: %v", path, err)
			}
		}
		got, golden := harmless(checkText(&c)), strings.TrimSuffix(path, ".json")+".txt"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got); go test -update writes it:\n%s", golden, diff)
		}
	}
}

// cardServer is a server of cards; it tells its URL and what it was asked for.
func cardServer(t *testing.T, documents map[string]string) (base string, asked func() []string) {
	t.Helper()
	var paths []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		text, ok := documents[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(strings.ReplaceAll(text, "BASE", "http://"+r.Host)))
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []string { return paths }
}

const smallCard = `{"name":"Critic","description":"d","version":"1","supportedInterfaces":[{"url":"BASE/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],` +
	`"capabilities":{},"defaultInputModes":[],"defaultOutputModes":[],"skills":[]}`

// Cards are found by their URL and by the base of their agent, here without
// being asked to allow this machine.
func TestAgentsCheckFindsCards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, card, ask string
		asked           []string
	}{
		{"the card", "/x/card.json", "/x/card.json", []string{"/x/card.json"}},
		{"the base", "/critic/.well-known/agent-card.json", "/critic/", []string{"/critic/.well-known/agent-card.json"}},
		{"another path of the host", "/.well-known/agent-card.json", "/critic", []string{"/critic/.well-known/agent-card.json", "/.well-known/agent-card.json"}},
		{"an early version", "/.well-known/agent.json", "", []string{"/.well-known/agent-card.json", "/.well-known/agent.json"}},
	} {
		base, asked := cardServer(t, map[string]string{tt.card: smallCard})
		for _, where := range []string{base + tt.ask, strings.TrimPrefix(base, "http://") + tt.ask} {
			code, stdout, stderr := outcome(t.Context(), "agents", "check", where, "--json")
			if code != 0 || gjson.Get(stdout, "name").Str != "Critic" || !gjson.Get(stdout, "usable").Bool() || gjson.Get(stdout, "interfaces.0.url").Str != base+"/a2a" {
				t.Errorf("%s: exit %d, %s %s", tt.name, code, stdout, stderr)
			}
		}
		if diff := cmp.Diff(append(tt.asked, tt.asked...), asked()); diff != "" {
			t.Errorf("%s: asked (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The exit code says whose fault it is.
func TestAgentsCheckExits(t *testing.T) {
	t.Parallel()
	base, _ := cardServer(t, map[string]string{
		"/unusable.json": `{"name":"x","supportedInterfaces":[]}`, "/other.json": `{"swagger":"2.0"}`, "/list.json": `[]`, "/text.json": `not JSON`, "/null.json": `null`,
		"/.well-known/agent-card/critic": `{"address":"@critic@bots.example.com","name":"critic","a2a":{}}`,
	})
	for _, tt := range []struct {
		where string
		want  int
	}{
		{base + "/unusable.json", 1},
		{base + "/.well-known/agent-card/critic", 2}, // the card of an address
		{base + "/nothing.json", 2},
		{base, 2},
		{"http://", 2},
		{"@critic", 2},
		{"@@verse8.io", 2},
		{"critic@localhost", 2},
		{"https://10.0.0.1/", 3},
		{"https://169.254.169.254/latest", 3},
		{"http://agents.example.com/", 3},
		{"https://user:pw@agents.example.com/", 3},
		{"ftp://agents.example.com/", 3}, // C33
		{base + "/other.json", 5},
		{base + "/list.json", 5},
		{base + "/text.json", 5},
		{base + "/null.json", 5},
		{"http://127.0.0.1:1/", 5},
	} {
		code, stdout, stderr := outcome(t.Context(), "agents", "check", tt.where)
		if code != tt.want || stderr == "" {
			t.Errorf("%s: exit %d, want %d\n%s%s", tt.where, code, tt.want, stdout, stderr)
		}
		_, _, asJSON := outcome(t.Context(), "agents", "check", tt.where, "--json")
		if !json.Valid([]byte(asJSON)) {
			t.Errorf("%s: %s", tt.where, asJSON)
		}
	}
	if code, _, stderr := outcome(t.Context(), "agents", "check", base+"/x.json", "--allow-host", "a b"); code != 2 {
		t.Errorf("--allow-host: %d %s", code, stderr)
	}
}

// An address is followed to its agent (C35), whose own card is read if there is
// one.
func TestAgentsCheckOfAnAddress(t *testing.T) {
	t.Parallel()
	documents := map[string]string{
		"/.well-known/webfinger": `{"subject":"acct:critic@bots.localhost","links":[{"rel":"https://mentionable.dev/ns/rel/agent-card","type":"application/json","href":"BASE/card"}]}`,
		"/card":                  `{"address":"@Critic@bots.localhost","name":"Critic","version":"2","protocol_version":"0.1","a2a":{"endpoint":"BASE/a2a/critic","transport":"https+jsonrpc","capabilities":{"streaming":true},"skills":[{"id":"x"}],"auth":{"schemes":["basic","Bearer"]}}}`,
	}
	base, _ := cardServer(t, documents)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	allow := "http://bots.localhost:" + port
	check := func(args ...string) (int, string, string) {
		t.Helper()
		return outcome(t.Context(), append([]string{"agents", "check", "@critic@bots.localhost"}, args...)...)
	}
	code, stdout, stderr := check("--allow-host", allow)
	for _, want := range []string{"Critic 2: this bus can call it", "address        @Critic@bots.localhost", "of its address, not of A2A", "note: there is no card at the endpoint", "    url: " + allow + "/a2a/critic\n    api_key_env: CRITIC_KEY\n", "basic, or Bearer (which the bus uses)"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("exit %d, %s\n%s has no %q", code, stderr, stdout, want)
		}
	}
	documents["/a2a/critic/.well-known/agent-card.json"] = strings.Replace(smallCard, "BASE/a2a", "BASE/other", 1)
	path := configure(t, "resolver: {allow_hosts: ['"+allow+"']}\nagents: {mine: {kind: builtin, builtin: echo, address: '@critic@bots.localhost'}}")
	code, stdout, stderr = check("--json", "--config", path)
	if code != 0 || gjson.Get(stdout, "shape").Str != "1.0" || gjson.Get(stdout, "address").Str != "@Critic@bots.localhost" ||
		!strings.Contains(stdout, "does not name the endpoint of the address") || !strings.Contains(stdout, "agent mine of the configuration has this address") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr := check("--config", configure(t, "")); code != 3 { // C33: it leads to this machine
		t.Errorf("without --allow-host: exit %d, %s", code, stderr)
	}
}

// A card behind a redirect is shown where it stands, since calls follow none (A15,
// P23); one that leads where the bus does not go is refused, and nobody is told to
// let it (C33).
func TestAgentsCheckRedirects(t *testing.T) {
	t.Parallel()
	base, _ := cardServer(t, map[string]string{"/there/.well-known/agent-card.json": smallCard})
	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := base + "/there/.well-known/agent-card.json"
		if strings.HasPrefix(r.URL.Path, "/inside") {
			to = "http://169.254.169.254/latest"
		}
		http.Redirect(w, r, to, http.StatusFound)
	}))
	t.Cleanup(moved.Close)
	code, stdout, stderr := outcome(t.Context(), "agents", "check", moved.URL+"/here")
	if code != 0 || !strings.Contains(stdout, "a redirect led to the card") || !strings.Contains(stdout, "    url: "+base) || strings.Contains(stdout, moved.URL) {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = outcome(t.Context(), "agents", "check", moved.URL+"/inside")
	if code != 3 || !strings.Contains(stderr, "it redirects to where this bus does not go") || strings.Contains(stderr, "allow_hosts") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}
