package server_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// A signing is a bus with a key of its own, whose issuer is where it is reached. Its URL
// is known before it starts, so that two can know each other.
type signing struct {
	*server.Server

	url  string
	http atomic.Pointer[http.Handler]
	path string // of the store
}

func newSigning(t *testing.T) *signing {
	t.Helper()
	s := &signing{path: sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db"))}
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.http.Load()).ServeHTTP(w, r) }))
	t.Cleanup(at.Close)
	s.url = at.URL
	return s
}

// start starts it with a key that is made of seed, and with more for its section trust.
func (s *signing) start(t *testing.T, seed, trust, yaml string) {
	t.Helper()
	text := fmt.Sprintf("store: {url: %q}\ntrust: {issuer: %q, key_env: KEY, signed_hops: true%s}\n%s",
		"sqlite:"+s.path, s.url, trust, yaml)
	c, _, err := config.Parse("test", []byte(text), config.Source{Dev: true, Env: func(name string) (string, bool) {
		v, ok := map[string]string{"KEY": strings.Repeat(seed, 32), "ORG_B": "org-b-secret"}[name]
		return v, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Server, err = server.New(t.Context(), server.Config{Config: c, Version: "test", Keys: []identity.StaticKey{
		{Principal: agentbus.Principal{ID: "user-123", Role: agentbus.PrincipalUser}, Secret: user},
		{Principal: agentbus.Principal{ID: "org-b", Role: agentbus.PrincipalUser, InterAgent: true}, Secret: agentbus.NewCredential("org-b-secret")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	bus := s.Server // another one may be started in its place
	t.Cleanup(func() { closed(t, bus) })
	h := s.Handler()
	s.http.Store(&h)
}

// C16: what a conversation says to agents of A2A on another bus carries hops that count
// there: each is signed for its message, and both buses prove it.
func TestC16HopsToAgentsOfA2A(t *testing.T) {
	t.Parallel()
	b, c := newSigning(t), newSigning(t)
	c.start(t, "c3", fmt.Sprintf(", buses: [{issuer: %q, caller: org-b}]", b.url), fmt.Sprintf(`
resolver: {allow_hosts: [%q]}
agents: {critic: {kind: builtin, builtin: echo}, seller: {kind: builtin, builtin: pay}}
`, strings.TrimPrefix(b.url, "http://")))
	b.start(t, "b2", "", fmt.Sprintf(`
agents:
  critic: {kind: a2a, url: %q, api_key_env: ORG_B}
  seller: {kind: a2a, url: %q, api_key_env: ORG_B}
  desk: {kind: conversation, conversation: desk}
conversations:
  desk: {plan: fan-out, max_turns: 2, participants: [{agent: critic}, {agent: seller}]}
`, c.url+"/a2a/critic", c.url+"/a2a/seller"))
	w := &three{url: b.url + "/a2a/", client: &http.Client{Transport: &http.Transport{}}, header: http.Header{"X-Tangle-Runid": {"run"}}}
	t.Cleanup(w.client.CloseIdleConnections)

	waits := w.send(t, "user-secret", "m1", "", "{}").Get("result.task")
	if waits.Get("status.state").Str != "TASK_STATE_INPUT_REQUIRED" {
		t.Fatal(waits.Raw)
	}
	state := waits.Get("status.message.metadata.mentionable.policy.state").Str
	done := w.send(t, "user-secret", "m2", waits.Get("id").Str, fmt.Sprintf(`{"mentionable":{"policy_resolution":{"in_reply_to_state":%q,"outcome":"granted"}}}`, state))
	if done.Get("result.task.status.state").Str != "TASK_STATE_COMPLETED" {
		t.Fatal(done.Raw)
	}

	messages, received := map[string]int{}, map[string]bool{} // by where and by hop, as C has received them
	kept, err := c.Store().HopTokens(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	for i := range kept {
		hop, err := identity.Unverified(kept[i].Token)
		if err != nil || !strings.HasPrefix(hop.MessageID, "m_") && !kept[i].Sent {
			t.Errorf("the hop %+v of no message: %v", hop, err)
		}
		if received[identity.HopDigest(kept[i].Token)] = true; !kept[i].Sent {
			messages[hop.Audience[len(c.url):]]++
		} else if !received[hop.Before] || hop.Subject != "user-123" || hop.Path[0] != b.url+"#conversation:desk" && hop.Path[0] != c.url+"#org-b" {
			t.Errorf("the hop behind the face is %+v", hop)
		}
	}
	if diff := cmp.Diff(map[string]int{"/a2a/critic": 1, "/a2a/seller": 2}, messages); diff != "" {
		t.Errorf("hops received (-want +got):\n%s", diff)
	}
	for _, bus := range []*signing{b, c} {
		if v, err := bus.VerifyHops(t.Context(), "run"); err != nil || v.Fault != "" || v.Unsigned != 0 || len(v.Hops) < 3 {
			t.Errorf("%+v, %v", v, err)
		}
	}
}

// C16, A22: a call that follows the task which an attempt before it began sends no message,
// and is proved by a hop all the same.
func TestC16HopOfATaskThatIsFollowed(t *testing.T) {
	t.Parallel()
	var asked, looks atomic.Int32
	seller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		in, task := gjson.ParseBytes(body), `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}`
		switch {
		case r.Method == http.MethodGet:
			http.NotFound(w, r)
			return
		case in.Get("method").Str != "GetTask":
			asked.Add(1)
			task = `{"task":` + task + `}`
		case looks.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable) // the driver calls again
			return
		default:
			task = `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"sold"}]}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, in.Get("id").Raw, task)
	}))
	t.Cleanup(seller.Close)
	b := newSigning(t)
	b.start(t, "b2", "", fmt.Sprintf(`
agents: {seller: {kind: a2a, url: %q}, critic: {kind: builtin, builtin: echo}}
conversations: {desk: {participants: [{agent: seller}, {agent: critic}], max_turns: 2}}
`, seller.URL))
	done := converse(t, b.Server, server.Start{Conversation: "desk", Seed: "x", Run: "run"})
	if done.Halt.Kind != agentbus.HaltMaxTurns || asked.Load() != 1 || looks.Load() != 2 {
		t.Fatalf("%+v, asked %d times, looked %d times", done.Halt, asked.Load(), looks.Load())
	}
	if v, err := b.VerifyHops(t.Context(), "run"); err != nil || v.Fault != "" || v.Unsigned != 0 || len(v.Hops) != 3 {
		t.Errorf("%+v, %v", v, err)
	}
}

// C13, C16: what a signed hop leaves holds behind the face of an agent, too: for its call
// and for all inside of it.
func TestC16BudgetLeftBehindAFace(t *testing.T) {
	t.Parallel()
	up, c := newSigning(t), newSigning(t)
	c.start(t, "c3", fmt.Sprintf(", buses: [{issuer: %q, caller: org-b}]", up.url), fmt.Sprintf(`
resolver: {allow_hosts: [%q]}
agents: {echo: {kind: builtin, builtin: echo}, critic: {kind: builtin, builtin: echo}, desk: {kind: conversation, conversation: desk}}
conversations: {desk: {participants: [{agent: echo}, {agent: critic}], max_turns: 2}}
`, strings.TrimPrefix(up.url, "http://")))
	up.start(t, "b2", "", "agents: {echo: {kind: builtin, builtin: echo}}")
	signer, err := identity.NewSigner(identity.SignerConfig{Issuer: up.url, Seed: agentbus.NewCredential(strings.Repeat("\xb2", 32))})
	if err != nil {
		t.Fatal(err)
	}
	hops, err := identity.NewHops(identity.HopsConfig{Signer: signer, Proofs: up.Store()})
	if err != nil {
		t.Fatal(err)
	}
	w := &three{url: c.url + "/a2a/", client: &http.Client{Transport: &http.Transport{}}, header: http.Header{"X-Tangle-Forwarded-Authorization": {"Bearer user-secret"}}}
	t.Cleanup(w.client.CloseIdleConnections)
	for calls, want := range map[int64]string{1: "TASK_STATE_FAILED budget_exceeded", 3: "TASK_STATE_COMPLETED "} {
		run, id := agentbus.RunID(fmt.Sprintf("run%d", calls)), fmt.Sprintf("m%d", calls)
		token, _, err := hops.Sign(agentbus.NextHop{
			Audience: c.url + "/a2a/desk", Caller: "x", Payer: "user-123", Chain: agentbus.AgentChain{Hop: 1, MaxHops: 4}, Run: run, MessageID: id, Left: agentbus.HopLeft{Calls: calls},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.header["X-Tangle-Runid"], w.header["X-Agentbus-Hop"] = []string{string(run)}, []string{token}
		got := w.send(t, "org-b-secret", id, "", "{}").Get("result.task.status")
		if said := got.Get("state").Str + " " + got.Get("message.metadata.agentbus.code").Str; said != want {
			t.Errorf("with %d calls left: %s, want %s: %s", calls, said, want, got.Raw)
		}
	}
}

// C16: after a change of its key a bus publishes the former one with the new one: what that
// signed is proved on, here and by others. Without it nobody can.
func TestC16AFormerKeyProvesOn(t *testing.T) {
	t.Parallel()
	b := newSigning(t)
	const agents = `
agents: {a: {kind: builtin, builtin: echo}, b: {kind: builtin, builtin: echo}}
conversations: {ab: {participants: [{agent: a}, {agent: b}], max_turns: 2}}
`
	b.start(t, "b2", "", agents)
	converse(t, b.Server, server.Start{Conversation: "ab", Seed: "x", Run: "run"})
	x := base64.RawURLEncoding.EncodeToString(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{0xb2}, 32)).Public().(ed25519.PublicKey)) //nolint:errcheck // it is one
	for former, want := range map[string]string{
		"": "the issuer has no such key",
		fmt.Sprintf(", former_keys: [{key_id: key-1, x: %s}]", x): "",
	} {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.start(t, "d4", ", key_id: key-2"+former, agents)
		if v, err := b.VerifyHops(t.Context(), "run"); err != nil || v.Fault != "" != (want != "") || !strings.Contains(v.Fault, want) || want == "" && len(v.Hops) != 2 {
			t.Errorf("with %q: %+v, %v", former, v, err)
		}
		published := httptest.NewRecorder()
		b.Handler().ServeHTTP(published, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/.well-known/jwks.json", http.NoBody))
		if kids := gjson.Get(published.Body.String(), "keys.#.kid").Raw; strings.Contains(kids, "#key-1") != (want == "") || !strings.Contains(kids, "#key-2") {
			t.Errorf("published %s", kids)
		}
	}
}
