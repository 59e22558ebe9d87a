package server_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// attests starts an issuer, and returns its URL and what makes evidence of it for
// an audience and a message.
func attests(t *testing.T) (url string, evidence func(aud, mid string) string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		jwk := jose.JSONWebKey{Key: key.Public(), KeyID: "http://" + r.Host + "#k1", Algorithm: "EdDSA", Use: "sig"}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": "http://" + r.Host, "keys": []any{jwk}})
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func(aud, mid string) string {
		part := func(format string, args ...any) string {
			return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, format, args...))
		}
		now := time.Now().UTC().Truncate(time.Second)
		text := part(`{"alg":"EdDSA","typ":"mentionable-identity-evidence+jwt","kid":"%s#k1"}`, srv.URL) + "." +
			part(`{"iss":%q,"sub":"slack:T1/U1","aud":%q,"jti":%q,"mid":%q,"method":"urn:slack:signed","assurance":"platform","iat":%d,"exp":%d}`, srv.URL, aud, mid, mid, now.Unix(), now.Unix()+300)
		jws := text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
		return fmt.Sprintf(`{"id":%q,"subject":"slack:T1/U1","issuer":%q,"method":"urn:slack:signed","assurance":"platform","audience":%q,"issued_at":%q,"expires_at":%q,`+
			`"proof":{"type":"signed-attestation","alg":"EdDSA","kid":"%s#k1","value":%q}}`,
			mid, srv.URL, aud, now.Format(time.RFC3339), now.Add(300*time.Second).Format(time.RFC3339), srv.URL, jws)
	}
}

// A heardPeer is an agent that speaks A2A without a card, and keeps what it is
// sent; it answers each message with a finished task, in the context of the
// message or in one of its own.
type heardPeer struct {
	*httptest.Server

	fails int // how many messages it refuses before it answers one

	mu     sync.Mutex
	bodies []string
	header []http.Header
}

func newHeardPeer(t *testing.T) *heardPeer {
	t.Helper()
	p := &heardPeer{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		p.bodies, p.header = append(p.bodies, string(body)), append(p.header, r.Header.Clone())
		n := len(p.bodies)
		p.mu.Unlock()
		if n <= p.fails {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		at := gjson.GetBytes(body, "params.message.contextId").Str
		if at == "" {
			at = fmt.Sprintf("ctx-%d", n)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"task":{"id":"t-%d","contextId":%q,"status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"hi"}]}]}}}`, gjson.GetBytes(body, "id").Raw, n, at)
	}))
	t.Cleanup(p.Close)
	return p
}

// heard returns the bodies and the headers of what it was sent.
func (p *heardPeer) heard() ([]string, []http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.bodies), slices.Clone(p.header)
}

// C20, C25: evidence of a message goes on, made anew for its receiver and its
// message, to the agents of A2A that a conversation of this bus asks for the
// caller, and to one that was found by address; C24: to an ACL it says nothing of
// a conversation that brings it along.
func TestC25EvidenceGoesOn(t *testing.T) {
	t.Parallel()
	issuer, evidence := attests(t)
	near := newHeardPeer(t)
	far := open(t, "agents: {critic: {kind: builtin, builtin: echo, address: '@critic@bots.localhost'}}")
	var mu sync.Mutex
	var sent string // to the agent found by address
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			sent = string(body)
			mu.Unlock()
			r.Body = io.NopCloser(bytes.NewReader(body))
			r.Header.Set("Authorization", "Bearer user-secret")
		}
		far.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(there.Close)
	_, port, err := net.SplitHostPort(there.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	const yaml = `
store: {url: %q}
trust:
  issuer: "http://127.0.0.1:1"
  key_env: KEY
  issuers: [{issuer: %q, methods: [urn:slack:signed], assurance: [platform], subject_prefixes: ["slack:T1/"]}]
resolver: {domains: [bots.localhost], allow_hosts: [%q, "http://bots.localhost:%s"]}
agents:
  near: {kind: a2a, url: %q}
  guarded: {kind: builtin, builtin: echo, acl: {allow: [{issuer: %q, method: urn:slack:signed, subject: "slack:T1/U1"}]}}
  desk: {kind: conversation, conversation: desk}
  back: {kind: conversation, conversation: back}
  echo: {kind: builtin, builtin: echo}
conversations:
  desk: {participants: [{agent: near}, {agent: echo}], max_turns: 2}
  back: {participants: [{agent: guarded}, {agent: echo}], max_turns: 2}
`
	text := fmt.Sprintf(yaml, "sqlite:"+sqlitetest.Prepare(t, filepath.Join(t.TempDir(), "bus.db")), issuer, issuer, port, near.URL, issuer)
	c, _, err := config.Parse("test", []byte(text), config.Source{Dev: true, Env: func(name string) (string, bool) { return strings.Repeat("a1", 32), name == "KEY" }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Config{Config: c, Version: "test", Keys: []identity.StaticKey{{Principal: agentbus.Principal{ID: "user-123", Role: agentbus.PrincipalUser}, Secret: user}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	w := &three{b: s, at: served(t, s)}
	ask := func(agent, aud, mid string) gjson.Result {
		w.agent = agent
		return w.ask(t, "user-secret", mid, "", "hi", `{"mentionable":{"identity_evidence":[`+evidence(aud, mid)+`]}}`)
	}

	if got := ask("desk", "http://127.0.0.1:1/a2a/desk", "m1"); got.Get("result.task.status.state").Str != "TASK_STATE_COMPLETED" {
		t.Fatal(got.Raw)
	}
	bodies, _ := near.heard()
	if len(bodies) != 1 {
		t.Fatalf("%d messages", len(bodies))
	}
	shown(t, bodies[0], near.URL, "http://127.0.0.1:1/conversation:desk")
	if got := ask("@critic@bots.localhost", "@critic@bots.localhost", "m2"); got.Get("result.task.status.state").Str != "TASK_STATE_COMPLETED" {
		t.Fatal(got.Raw)
	}
	mu.Lock()
	shown(t, sent, "@critic@bots.localhost", "http://127.0.0.1:1/user-123")
	mu.Unlock()
	if got := ask("guarded", "http://127.0.0.1:1/a2a/guarded", "m3"); got.Get("result.task.status.state").Str != "TASK_STATE_COMPLETED" {
		t.Errorf("the subject of the evidence is refused: %s", got.Raw)
	}
	if got := ask("back", "http://127.0.0.1:1/a2a/back", "m4"); got.Get("result.task.status.state").Str == "TASK_STATE_COMPLETED" {
		t.Errorf("a conversation passed for the subject of the evidence: %s", got.Raw)
	}
}

// C22, C24: who answers a task that waits shows its evidence with that message; the agent
// asks for it as it did for the first one.
func TestC24EvidenceOfAnAnswer(t *testing.T) {
	t.Parallel()
	issuer, evidence := attests(t)
	s := open(t, fmt.Sprintf(`
trust: {issuer: "http://127.0.0.1:1", issuers: [{issuer: %q, methods: [urn:slack:signed], assurance: [platform], subject_prefixes: ["slack:T1/"]}]}
resolver: {allow_hosts: [%q]}
agents: {seller: {kind: builtin, builtin: pay, acl: {allow: [{issuer: %q, method: urn:slack:signed, subject: "slack:T1/U1"}]}}}
`, issuer, strings.TrimPrefix(issuer, "http://"), issuer))
	w := &three{b: s, at: served(t, s), agent: "seller"}
	ask := func(mid, task, more string) gjson.Result {
		return w.ask(t, "user-secret", mid, task, "hi", fmt.Sprintf(`{"mentionable":{%s"identity_evidence":[%s]}}`, more, evidence("http://127.0.0.1:1/a2a/seller", mid))).Get("result.task")
	}
	waits := ask("m1", "", "")
	state := waits.Get("status.message.metadata.mentionable.policy.state").Str
	if waits.Get("status.state").Str != "TASK_STATE_INPUT_REQUIRED" || state == "" {
		t.Fatal(waits.Raw)
	}
	paid := ask("m2", waits.Get("id").Str, fmt.Sprintf(`"policy_resolution":{"in_reply_to_state":%q,"outcome":"granted"},`, state))
	if paid.Get("status.state").Str != "TASK_STATE_COMPLETED" {
		t.Error(paid.Raw)
	}
}

// C22, C25: a bus that has no key is known by its trust.issuer too; evidence ends
// there, and the record says so.
func TestC25ABusWithoutAKey(t *testing.T) {
	t.Parallel()
	issuer, evidence := attests(t)
	peer := newHeardPeer(t)
	s := open(t, fmt.Sprintf(`
trust: {issuer: "http://127.0.0.1:1", issuers: [{issuer: %q, methods: [urn:slack:signed], assurance: [platform], subject_prefixes: ["slack:T1/"]}]}
resolver: {allow_hosts: [%q]}
agents: {peer: {kind: a2a, url: %q}}
`, issuer, strings.TrimPrefix(issuer, "http://"), peer.URL))
	w := &three{b: s, at: served(t, s), agent: "peer", header: http.Header{"X-Tangle-Runid": {"run"}}}
	if got := w.ask(t, "user-secret", "m1", "", "hi", `{"mentionable":{"identity_evidence":[`+evidence("http://127.0.0.1:1/a2a/peer", "m1")+`]}}`); got.Get("result.task.status.state").Str != "TASK_STATE_COMPLETED" {
		t.Fatal(got.Raw)
	}
	if bodies, _ := peer.heard(); len(bodies) != 1 || strings.Contains(bodies[0], "evidence") {
		t.Errorf("the agent was sent %q", bodies)
	}
	calls, err := s.Store().Calls(t.Context(), "run")
	if err != nil || len(calls) != 1 || !slices.Contains(calls[0].Notes, "evidence_sent:drop") {
		t.Errorf("recorded as %+v, %v", calls, err)
	}
}

// shown checks the one evidence that a message shows.
func shown(t *testing.T, body, audience, subject string) {
	t.Helper()
	m := gjson.Get(body, "params.message")
	e := m.Get("metadata.mentionable.identity_evidence")
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(e.Get("0.proof.value").Str+"..", ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	signed := gjson.ParseBytes(payload)
	got := []string{e.Get("#").Raw, e.Get("0.audience").Str, signed.Get("aud").Str, signed.Get("mid").Str, e.Get("0.subject").Str, e.Get("0.on_behalf_of.0").Str, signed.Get("sub").Str}
	want := []string{"1", audience, audience, m.Get("messageId").Str, subject, "slack:T1/U1", "slack:T1/U1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shown (-want +got):\n%s\n%s", diff, e.Raw)
	}
}

// K-7, K8, A24: an agent with isolate_sessions is told each call in a fresh
// context, by none being named, and by nothing that leads to the one before; the
// session and the root stay. Otherwise the second call is in the context that the
// agent made for the first.
func TestK7AFreshContextForEachCall(t *testing.T) {
	t.Parallel()
	const yaml = `
agents:
  peer: {kind: a2a, url: %q, isolate_sessions: %v}
  echo: {kind: builtin, builtin: echo}
  desk: {kind: conversation, conversation: desk}
conversations:
  desk: {participants: [{agent: peer}, {agent: echo}], max_turns: 3}
`
	for isolated, want := range map[bool][]string{true: {"", ""}, false: {"", "ctx-1"}} {
		peer := newHeardPeer(t)
		bus := open(t, fmt.Sprintf(yaml, peer.URL, isolated))
		w := &three{b: bus, at: served(t, bus), header: http.Header{"X-Kagent-Root-Context-Id": {"r"}}}
		if task := w.ask(t, "user-secret", "m1", "", "hi", "{}").Get("result.task"); task.Get("status.state").Str != "TASK_STATE_COMPLETED" {
			t.Fatal(task.Raw)
		}
		var contexts, parents []string
		bodies, headers := peer.heard()
		for i, body := range bodies {
			contexts = append(contexts, gjson.Get(body, "params.message.contextId").Str)
			if refers := gjson.Get(body, "params.message.referenceTaskIds").Exists(); refers != (i > 0 && !isolated) {
				t.Errorf("isolated %v: message %d refers to tasks: %v", isolated, i, refers)
			}
			h := headers[i]
			parents = append(parents, h.Get("X-Kagent-Parent-Context-Id"))
			if diff := cmp.Diff([]string{"r"}, h["X-Kagent-Root-Context-Id"]); diff != "" {
				t.Errorf("isolated %v: root (-want +got):\n%s", isolated, diff)
			}
		}
		if diff := cmp.Diff(want, contexts); diff != "" {
			t.Errorf("isolated %v: contexts (-want +got):\n%s", isolated, diff)
		}
		if len(slices.Compact(parents)) != 1 || parents[0] == "" {
			t.Errorf("isolated %v: sessions %v", isolated, parents)
		}
	}
}

// X13, A21, C13: a turn that is tried again is the same message at the same hop,
// and is charged once.
func TestX13ARetryIsTheSameMessage(t *testing.T) {
	t.Parallel()
	peer := newHeardPeer(t)
	peer.fails = 1
	s := open(t, fmt.Sprintf(`
agents:
  peer: {kind: a2a, url: %q, price: {call: 0.02}}
  echo: {kind: builtin, builtin: echo}
conversations:
  desk: {participants: [{agent: peer}, {agent: echo}], max_turns: 1}
`, peer.URL))
	if r := converse(t, s, server.Start{Conversation: "desk", Seed: "x", Run: "run", Authorization: agentbus.NewCredential("Bearer user-secret")}); r.Halt.Kind != agentbus.HaltMaxTurns {
		t.Fatalf("halted with %+v", r.Halt)
	}
	bodies, headers := peer.heard()
	if len(bodies) != 2 {
		t.Fatalf("%d messages", len(bodies))
	}
	said := func(i int) []string {
		m := gjson.Get(bodies[i], "params.message")
		return []string{m.Get("messageId").Str, m.Get("metadata.mentionable.agent_chain.@ugly").Raw, headers[i].Get("X-Tangle-Turnid"), headers[i].Get("X-Tangle-Forwarded-Depth")}
	}
	if diff := cmp.Diff(said(0), said(1)); diff != "" || said(0)[1] != `{"hop":1,"is_final":false,"max_hops":4}` {
		t.Errorf("%v; the second try (-first +second):\n%s", said(0), diff)
	}
	if diff := cmp.Diff(map[string]row{"peer": {"peer", 1, "user-123", 20_000}}, charges(t, s, "run")); diff != "" {
		t.Errorf("charged (-want +got):\n%s", diff)
	}
}
