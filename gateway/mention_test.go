package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/identity"
)

// sayAs is a send whose message has metadata.
func sayAs(messageID, metadata string) string {
	return rpc("r1", "SendMessage", `{"message":{"messageId":"`+messageID+`","role":"ROLE_USER","parts":[{"text":"hi"}],"metadata":`+metadata+`}}`)
}

func chainOf(hop, most string) string {
	return `{"mentionable":{"agent_chain":{"hop":` + hop + `,"max_hops":` + most + `}}}`
}

// C3 to C11, X1 to X6 on the wire, through the proxy: what is refused reaches no
// agent; what is served tells the agent its place, once, and every other byte is
// as it came.
func TestChainsOverA2A(t *testing.T) {
	t.Parallel()
	const told = "mentionable.agent_chain"
	for name, c := range map[string]struct {
		metadata, params string
		as               []string
		absent           gateway.AbsentChain
		fault            string // "": it is served
		want             string // what the agent is told
		headers          []string
	}{
		"a user":               {metadata: `{}`, as: lines(asAlice)},
		"as it came":           {metadata: chainOf("2", "4"), as: lines(asRelay), want: `{"hop":2,"max_hops":4,"is_final":false}`},
		"X3 60 is clamped":     {metadata: chainOf("1", "60"), as: lines(asRelay), want: `{"hop":1,"max_hops":4,"is_final":false}`},
		"X3 1000":              {metadata: chainOf("1", "1000"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X4 not final at max":  {metadata: `{"mentionable":{"agent_chain":{"hop":4,"max_hops":4,"is_final":false}}}`, as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X4 final early":       {metadata: `{"mentionable":{"agent_chain":{"hop":1,"max_hops":4,"is_final":true}}}`, as: lines(asRelay), want: `{"hop":1,"max_hops":4,"is_final":true}`},
		"X5 zero":              {metadata: chainOf("0", "4"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X5 a text":            {metadata: chainOf(`"2"`, "4"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X5 below zero":        {metadata: chainOf("-1", "4"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X5 a fraction":        {metadata: chainOf("1.5", "4"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X5 no number of Go":   {metadata: chainOf("1e400", "4"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X5 2^63":              {metadata: chainOf("9223372036854775808", "4"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X5 null":              {metadata: chainOf("null", "4"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X5 beyond its own":    {metadata: chainOf("3", "2"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X6 twice":             {metadata: `{"mentionable":{"agent_chain":{"hop":1,"max_hops":4},"agent_chain":{"hop":1,"max_hops":4}}}`, as: lines(asRelay), fault: "200 -32600 INVALID_REQUEST"},
		"X6 a member twice":    {metadata: `{"mentionable":{"agent_chain":{"hop":1,"hop":1,"max_hops":4}}}`, as: lines(asRelay), fault: "200 -32600 INVALID_REQUEST"},
		"X29 1 MB":             {metadata: `{"agentbus":{"x-tangle-runid":"r","x-kagent-root-context-id":"` + strings.Repeat("r", 1<<20) + `"}}`, as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X6 copies":            {metadata: chainOf("1", "4"), params: chainOf("2", "4"), as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X6 another case":      {metadata: `{"mentionable":{"Agent_Chain":{"hop":1,"max_hops":4}}}`, as: lines(asRelay), fault: "200 -32600 INVALID_REQUEST"},
		"C16 a hop is a text":  {metadata: `{"mentionable":{"chain_token":["a.b.c"]}}`, as: lines(asRelay), fault: "400 -32602 INVALID_LINEAGE"},
		"X6 header twice":      {metadata: `{}`, as: lines(asRelay), headers: lines("x-agentbus-hop: a", "x-agentbus-hop: b"), fault: "400 -32602 DUPLICATE_HEADER"},
		"X1 allow":             {metadata: `{}`, as: lines(asRelay, forAlice)},
		"X1 final":             {metadata: `{}`, as: lines(asRelay, forAlice), absent: gateway.AbsentFinal, want: `{"hop":1,"max_hops":1,"is_final":true}`},
		"X1 reject":            {metadata: `{}`, as: lines(asRelay, forAlice), absent: gateway.AbsentReject, fault: "400 -32602 INVALID_LINEAGE"},
		"C3 received over A2A": {metadata: `{"mentionable":{"received_via":"a2a","received_trace":{"hop":3}}}`, as: lines(asRelay, forAlice)}, // which says nothing of a chain
		"C3 from a mailbox":    {metadata: `{"mentionable":{"received_via":"email","agent_chain":{"hop":2,"max_hops":4}}}`, as: lines(asRelay), want: `{"hop":2,"max_hops":4,"is_final":false}`},
		"C10 depth":            {metadata: `{}`, as: lines(asRelay, depth+"2"), want: `{"hop":2,"max_hops":4,"is_final":false}`},
		"beyond the last":      {metadata: chainOf("5", "9"), as: lines(asRelay), fault: "429 -32000 CHAIN_FINAL"},
		"C20 evidence ignored": {metadata: `{"mentionable":{"identity_evidence":[{"secret":"` + canary + `"}]},"kept":1}`, as: lines(asRelay)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone))
			b := newBus(t, func(g *gateway.Config) { g.Chain.Absent = c.absent }, a)
			body := sayAs("m1", c.metadata)
			if c.params != "" {
				body = strings.TrimSuffix(body, "}}") + `},"metadata":` + c.params + `}}`
				body = strings.Replace(body, `}},"metadata"`, `},"metadata"`, 1)
			}
			got := b.send(http.MethodPost, "/a2a/writer", body, append(append(turn("r", "r.t0.writer"), c.as...), c.headers...)...)
			if c.fault != "" {
				if fault(got) != c.fault || a.executions() > 0 {
					t.Errorf("%v is %s, want %s; %d executions", got, fault(got), c.fault, a.executions())
				}
				if strings.Contains(strings.ReplaceAll(got.body, `"@type"`, ""), "@") { // X32
					t.Errorf("the error mentions somebody: %s", got.body)
				}
				return
			}
			if got.status != http.StatusOK {
				t.Fatal(got)
			}
			sent := a.next(t).body
			m := gjson.Get(sent, "params.message.metadata")
			if compact := strings.ReplaceAll(m.Get(told).Raw, " ", ""); c.want == "" && m.Get(told).Exists() || c.want != "" && !sameChain(compact, c.want) {
				t.Errorf("the agent was told %s", sent)
			}
			if strings.Contains(sent, canary) || strings.Contains(b.log.text(), canary) {
				t.Errorf("evidence left the bus: %s", sent)
			}
		})
	}
}

// sameChain compares chains, of which the last member may be left out.
func sameChain(a, b string) bool {
	x, errX := agentbus.ParseAgentChain([]byte(a))
	y, errY := agentbus.ParseAgentChain([]byte(b))
	return errX == nil && errY == nil && x == y
}

// C11, X1, X2: inside of a turn that this bus knows, a chain that was stripped or
// begins anew is refused, by what the ledger has.
func TestX2ParentIsKnown(t *testing.T) {
	t.Parallel()
	a, c := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone)), newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	b := newBus(t, nil, a, c)
	if got := b.send(http.MethodPost, "/a2a/writer", sayAs("m1", chainOf("2", "4")), append(turn("r", "r.t0.writer"), asRelay, forAlice, depth+"1")...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	for metadata, want := range map[string]string{`{}`: "400 -32602 INVALID_LINEAGE", chainOf("1", "4"): "400 -32602 INVALID_LINEAGE", chainOf("3", "4"): ""} {
		inner := append(append(turn("r", "i"+strconv.Itoa(len(metadata))), within("r.t0.writer", "", 3)...), asRelay, forAlice)
		got := b.send(http.MethodPost, "/a2a/critic", sayAs("m2", metadata), inner...)
		if want != "" && fault(got) != want || want == "" && got.status != http.StatusOK {
			t.Errorf("%s: %v, want %q", metadata, got, want)
		}
	}
	if n := len(c.heard); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// X1: under final, what an agent without a chain asked for is served, and its
// agent calls nobody from inside that turn, whatever it claims.
func TestX1ServedAndCallsNobody(t *testing.T) {
	t.Parallel()
	a, c := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone)), newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	b := newBus(t, func(g *gateway.Config) { g.Chain.Absent = gateway.AbsentFinal }, a, c)
	if got := b.send(http.MethodPost, "/a2a/writer", sayAs("m1", `{}`), append(turn("r", "r.t0.writer"), asRelay, forAlice)...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	for i, metadata := range []string{`{}`, chainOf("1", "4"), chainOf("2", "4")} {
		inner := append(append(turn("r", "i"+strconv.Itoa(i)), within("r.t0.writer", "", 3)...), asRelay, forAlice)
		if got := b.send(http.MethodPost, "/a2a/critic", sayAs("m2", metadata), inner...); fault(got) != "429 -32000 CHAIN_FINAL" {
			t.Errorf("%s: %v", metadata, got)
		}
	}
	if n := c.executions(); n != 0 {
		t.Errorf("%d requests to the agent, its card included", n)
	}
}

// verdicts are what a verifier of these tests says of evidence.
type verdicts struct{ err error }

func (v verdicts) Verify(_ context.Context, raw []byte, to agentbus.EvidenceFor) ([]agentbus.Evidence, error) {
	if v.err != nil || to.MessageID != "m1" || !slices.Contains(to.Audiences, "@writer@bots.example.com") {
		return nil, errors.Join(v.err, &agentbus.Error{Code: agentbus.CodeUnauthenticated, Message: "no"})
	}
	return []agentbus.Evidence{{Issuer: "slack", Method: "m", Subject: gjson.GetBytes(raw, "0.subject").Str}}, nil
}

type rebinds struct{}

func (r rebinds) Mode() string { return "wrap" }

func (r rebinds) Rebind(_ context.Context, e agentbus.Evidence, to agentbus.EvidenceFor, caller string) ([]byte, string, error) {
	return []byte(`{"subject":"` + e.Subject + `","audience":"` + to.Audiences[0] + `","by":"` + caller + `"}`), "wrap", nil
}

// C1, C20 to C25: an agent with an ACL is reached by those whom it names, by what
// they prove and not by what a message says of its sender; nobody else is told more than no. The bill stays the caller's, the
// evidence is not stored, and what goes on is made anew.
func TestC24AccessByEvidence(t *testing.T) {
	t.Parallel()
	address, err := agentbus.ParseAddress("@writer@bots.example.com")
	if err != nil {
		t.Fatal(err)
	}
	const evidence = `{"mentionable":{"identity_evidence":[{"subject":"u1","secret":"` + canary + `"}]}}`
	const posed = `{"mentionable":{"sender":{"address":"u1","verified":true,"auth_method":"a2a-jwt","profile":{"issuer":"slack","method":"m","subject":"u1"},
		"identities":[{"issuer":"slack","method":"m","subject":"u1"}]}}}`
	allow := func(issuer, method, subject string) *agentbus.ACL {
		return &agentbus.ACL{Allow: []agentbus.ACLEntry{{Issuer: issuer, Method: method, Subject: subject}}}
	}
	for name, c := range map[string]struct {
		acl      *agentbus.ACL
		metadata string
		verifier gateway.EvidenceVerifier
		as       string // "": alice
		fault    string
	}{
		"without an ACL":               {metadata: `{}`},
		"empty is nobody":              {acl: &agentbus.ACL{}, metadata: evidence, verifier: verdicts{}, fault: "403 -32000 FORBIDDEN"},
		"public":                       {acl: &agentbus.ACL{Public: true}, metadata: `{}`},
		"the caller":                   {acl: allow("agentbus", agentbus.LocalMethod, "alice"), metadata: `{}`},
		"another caller":               {acl: allow("agentbus", agentbus.LocalMethod, "bob"), metadata: `{}`, fault: "403 -32000 FORBIDDEN"},
		"by evidence":                  {acl: allow("slack", "m", "u1"), metadata: evidence, verifier: verdicts{}},
		"another subject":              {acl: allow("slack", "m", "u2"), metadata: evidence, verifier: verdicts{}, fault: "403 -32000 FORBIDDEN"},
		"nobody verifies":              {acl: allow("slack", "m", "u1"), metadata: evidence, fault: "403 -32000 FORBIDDEN"},
		"says that it is verified":     {acl: allow("slack", "m", "u1"), metadata: posed, verifier: verdicts{}, fault: "403 -32000 FORBIDDEN"},
		"says so beside an ACL":        {acl: allow("agentbus", agentbus.LocalMethod, "alice"), metadata: posed},
		"the credential comes first":   {acl: allow("slack", "m", "u1"), metadata: evidence, verifier: verdicts{&agentbus.Error{Code: agentbus.CodeInternal, Message: "it is too early"}}, as: "Authorization: Bearer nobody", fault: "401 -32000 UNAUTHENTICATED"},
		"bad evidence, without an ACL": {metadata: evidence, verifier: verdicts{errors.New("expired")}, fault: "401 -32000 UNAUTHENTICATED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone))
			a.ACL, a.Address = c.acl, address
			b := newBus(t, func(g *gateway.Config) { g.Evidence, g.Rebinder = c.verifier, rebinds{} }, a)
			got := b.send(http.MethodPost, "/a2a/writer", sayAs("m1", c.metadata), append(turn("r", "r.t0.writer"), cmp.Or(c.as, asAlice))...)
			if c.fault != "" {
				if fault(got) != c.fault || a.executions() > 0 {
					t.Errorf("%v is %s, want %s", got, fault(got), c.fault)
				}
				return
			}
			if got.status != http.StatusOK {
				t.Fatal(got)
			}
			sent := gjson.Get(a.next(t).body, "params.message.metadata.mentionable.identity_evidence")
			if want := `[{"subject":"u1","audience":"@writer@bots.example.com","by":"alice"}]`; c.verifier != nil && sent.Raw != want || c.verifier == nil && sent.Exists() {
				t.Errorf("the agent was shown %s", sent.Raw)
			}
			call := b.one("r", agentbus.CallSettled)
			if call.Payer != "alice" || c.verifier != nil && !slices.Contains(call.Notes, "evidence_sent:wrap") {
				t.Errorf("recorded as %+v", call)
			}
			if raw, _ := json.Marshal(call); strings.Contains(string(raw), canary) || strings.Contains(b.log.text(), canary) {
				t.Error("evidence was stored or logged")
			}
		})
	}
}

// C16: hops are signed to agents, in the header and in the metadata; each names
// the one before it.
func TestC16SignedHopsBetweenBuses(t *testing.T) {
	t.Parallel()
	const issuer = "http://127.0.0.1"
	a, signer := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone)), signerOf(t, issuer)
	b := newBus(t, func(g *gateway.Config) {
		store := g.Ledger.(interface { //nolint:errcheck // the store of every bus here
			identity.Proofs
			gateway.HopKeeper
		})
		hops, err := identity.NewHops(identity.HopsConfig{
			Signer: signer, Proofs: store, Client: &http.Client{Transport: transport(t)},
			Trust: []identity.HopIssuer{{Issuer: "http://127.0.0.1:1", Caller: "relay"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		g.Hops, g.HopKeeper, g.Issuer = hops, store, issuer
		g.WellKnown = map[string][]byte{"/.well-known/jwks.json": signer.JWKS()}
	}, a)
	for i, id := range []string{"r.t0.writer", "r.t1.writer"} {
		headers := append(turn("r", id), asRelay, forAlice, depth+"1")
		if i == 1 {
			headers = append(append(turn("r", id), within("r.t0.writer", "", 3)...), asRelay, forAlice)
		}
		if got := b.send(http.MethodPost, "/a2a/writer", sayAs("m"+strconv.Itoa(i), chainOf(strconv.Itoa(i+1), "4")), headers...); got.status != http.StatusOK {
			t.Fatal(got)
		}
	}
	var tokens []string
	for range 2 {
		h := a.next(t)
		tokens = append(tokens, h.header.Get("X-Agentbus-Hop"))
		if in := gjson.Get(h.body, "params.message.metadata.mentionable.chain_token").Str; in == "" || in != tokens[len(tokens)-1] {
			t.Errorf("the metadata has %q", in)
		}
	}
	kept, err := b.store.HopTokens(t.Context(), "r")
	if err != nil || len(kept) != 2 || kept[0].Token != tokens[0] || !kept[1].Sent {
		t.Fatalf("kept %+v, %v", kept, err)
	}
	second := payloadOf(t, tokens[1])
	if second.Before != identity.HopDigest(tokens[0]) || second.Hop != 2 || len(second.Path) != 2 || second.Subject != "alice" || second.MessageID != "m1" || second.ID != kept[1].RequestID {
		t.Errorf("the second hop is %+v", second)
	}
	// One that nobody here trusts, although it is this bus's own.
	other := b.send(http.MethodPost, "/a2a/writer", sayAs("m9", chainOf("1", "4")), append(turn("q", "q1"), asRelay, "x-agentbus-hop: "+tokens[0])...)
	if fault(other) != "401 -32000 UNAUTHENTICATED" {
		t.Errorf("a token of its own: %v", other)
	}
	if got := b.send(http.MethodGet, "/.well-known/jwks.json", ""); gjson.Get(got.body, "keys.0.kty").Str != "OKP" || gjson.Get(got.body, "keys.0.d").Exists() {
		t.Errorf("keys: %v", got)
	}
	if n := len(a.heard); n != 0 { // the first two were read
		t.Errorf("%d more calls", n)
	}
}

// A card answers for the keys of an issuer, whatever it is asked.
type cardOf []byte

func (c cardOf) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(c)), Request: r}, nil
}

// signerOf signs in the name of an issuer, with a key of its own.
func signerOf(t *testing.T, issuer string) *identity.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := identity.NewSigner(identity.SignerConfig{Issuer: issuer, Seed: agentbus.NewCredential(string(key.Seed()))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// unproved remembers no proof.
type unproved struct{ identity.Proofs }

// C16, X2, X10, X11: a signed hop of a trusted bus counts for the agent, the
// message, the sender and the place in the chain that it names, and once. What is
// refused reaches no agent.
func TestX10SignedHopsOfOthers(t *testing.T) {
	t.Parallel()
	const issuer, here = "https://up.example.com", "https://here.example.com"
	up := signerOf(t, issuer)
	theirs, err := identity.NewHops(identity.HopsConfig{Signer: up, Proofs: unproved{}, Client: http.DefaultClient})
	if err != nil {
		t.Fatal(err)
	}
	writer, critic := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone)), newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	for _, a := range []*agent{writer, critic} {
		if a.Address, err = agentbus.ParseAddress("@" + a.Name + "@bots.example.com"); err != nil {
			t.Fatal(err)
		}
	}
	b := newBus(t, func(g *gateway.Config) {
		store := g.Ledger.(interface { //nolint:errcheck // the store of every bus here
			identity.Proofs
			gateway.HopKeeper
		})
		hops, err := identity.NewHops(identity.HopsConfig{
			Signer: signerOf(t, here), Proofs: store, Client: &http.Client{Transport: cardOf(up.Card())},
			Trust: []identity.HopIssuer{{Issuer: issuer, Caller: "relay"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		g.Hops, g.HopKeeper, g.Issuer = hops, store, here
	}, writer, critic)
	sign := func(hop int) string {
		token, _, err := theirs.Sign(agentbus.NextHop{
			Audience: writer.Address.String(), Caller: "x", Payer: "alice", Chain: agentbus.AgentChain{Hop: 1, MaxHops: 4}, Run: "r", MessageID: "m1",
		})
		if err == nil && hop == 2 {
			token, _, err = theirs.Sign(agentbus.NextHop{
				Audience: writer.Address.String(), Caller: "y", Payer: "alice", Chain: agentbus.AgentChain{Hop: 2, MaxHops: 4}, Run: "r", MessageID: "m1", Before: token,
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	good := sign(1)
	const no = "401 -32000 UNAUTHENTICATED"
	for i, c := range []struct {
		what, agent, message, chain, token string
		as                                 string
		want                               string
	}{
		{"another agent", "critic", "m1", chainOf("1", "4"), good, asRelay, no},
		{"another message", "writer", "m2", chainOf("1", "4"), good, asRelay, no},
		{"another sender", "writer", "m1", chainOf("1", "4"), good, asAlice, no},
		{"X2 begins anew", "writer", "m1", chainOf("1", "4"), sign(2), asRelay, "400 -32602 INVALID_LINEAGE"},
		{"counts", "writer", "m1", chainOf("1", "4"), good, asRelay, ""},
		{"X11 again", "writer", "m1", chainOf("1", "4"), good, asRelay, no},
	} {
		before := writer.executions() + critic.executions()
		got := b.send(http.MethodPost, "/a2a/"+c.agent, sayAs(c.message, c.chain), append(turn("r", "r.t"+strconv.Itoa(i)+".x"), c.as, "x-agentbus-hop: "+c.token)...)
		switch after := writer.executions() + critic.executions(); {
		case c.want == "" && got.status != http.StatusOK:
			t.Errorf("%s: %v", c.what, got)
		case c.want != "" && (fault(got) != c.want || after != before):
			t.Errorf("%s: %v, want %s; %d more requests", c.what, got, c.want, after-before)
		}
	}
}

// late are hops behind one that has expired.
type late struct{ gateway.Hops }

func (late) Sign(agentbus.NextHop) (string, bool, error) { return "a.b.c", false, nil }

// C16: a hop that nobody would take is kept and not sent, so that the call is not
// refused for it; the record says so.
func TestC16AnExpiredHopIsKept(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone))
	b := newBus(t, func(g *gateway.Config) {
		g.Hops, g.HopKeeper = late{}, g.Ledger.(gateway.HopKeeper) //nolint:errcheck // the store of every bus here
	}, a)
	if got := b.send(http.MethodPost, "/a2a/writer", sayAs("m1", chainOf("1", "4")), append(turn("r", "r.t0.writer"), asRelay, forAlice)...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	if h := a.next(t); h.header.Get("X-Agentbus-Hop") != "" || strings.Contains(h.body, "chain_token") {
		t.Errorf("the agent was sent %v %s", h.header, h.body)
	}
	kept, err := b.store.HopTokens(t.Context(), "r")
	if err != nil || len(kept) != 1 || kept[0].Token != "a.b.c" || !slices.Contains(b.one("r", agentbus.CallSettled).Notes, "hop_expired") {
		t.Errorf("kept %+v, %v", kept, err)
	}
}

func payloadOf(t *testing.T, token string) (h agentbus.Hop) {
	t.Helper()
	claims, err := identity.Unverified(token)
	if err != nil {
		t.Fatal(err)
	}
	return claims
}
