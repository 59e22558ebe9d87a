package identity_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// C16, X2, X3, X10, X11: what a signed hop must be, in the order of the checks.
func TestSignedHops(t *testing.T) {
	t.Parallel()
	s, stranger := newSlack(t), newSlack(t)
	signer := func(s *slack) *identity.Signer {
		got, err := identity.NewSigner(identity.SignerConfig{Issuer: s.url, Seed: agentbus.NewCredential(string(s.key.Seed())), KeyID: "k1"})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	now := at
	hops := func(s *slack, trust ...identity.HopIssuer) (*identity.Hops, *proofs, *strings.Builder) {
		used, log := &proofs{}, &strings.Builder{}
		h, err := identity.NewHops(identity.HopsConfig{
			Signer: signer(s), Trust: trust, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Proofs: used, Logger: logTo(log), Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		return h, used, log
	}
	theirs, _, _ := hops(s)
	outside, _, _ := hops(stranger)
	first := agentbus.NextHop{
		Audience: "@a@bots.example.com", Caller: "conversation:x", Payer: "alice", Chain: agentbus.AgentChain{Hop: 1, MaxHops: 4}, Run: "r", RootContext: "chat",
		MessageID: "m1", Left: agentbus.HopLeft{Calls: 10, Deadline: at.Unix() + 60},
	}
	token, err := theirs.Sign(first)
	if err != nil {
		t.Fatal(err)
	}
	second := first
	second.Before, second.Caller, second.Chain, second.Left, second.Payer = token, "agent:a", agentbus.AgentChain{Hop: 2, MaxHops: 64}, agentbus.HopLeft{Calls: 20}, "mallory"
	next, err := theirs.Sign(second)
	if err != nil {
		t.Fatal(err)
	}
	read, err := theirs.Read(t.Context(), next)
	want := agentbus.Hop{
		Issuer: s.url, Audience: "@a@bots.example.com", Subject: "alice", Issued: at.Unix(), Expires: at.Unix() + 600, ID: read.ID, Chain: "r", RootContext: "chat",
		Hop: 2, MaxHops: 4, Path: []string{s.url + "#conversation:x", s.url + "#agent:a"}, Before: identity.HopDigest(token),
		Left: agentbus.HopLeft{Calls: 10, Deadline: at.Unix() + 60}, MessageID: "m1",
	}
	if diff := cmp.Diff(want, read); diff != "" || err != nil {
		t.Errorf("%v, the second hop (-want +got):\n%s", err, diff)
	}
	good := agentbus.HopFor{Audiences: []string{"@A@bots.example.com"}, Sender: "bus-s", MessageID: "m1", MaxHops: 4, Plain: &agentbus.AgentChain{Hop: 2, MaxHops: 4}}
	for name, c := range map[string]struct {
		token  string
		change func(f *agentbus.HopFor)
		broken bool
		again  bool
		late   time.Duration
		code   agentbus.Code
		logged identity.EvidenceCode
	}{
		"counts":                 {token: next},
		"nobody's issuer":        {token: must(outside.Sign(first)), code: agentbus.CodeUnauthenticated, logged: identity.EvidenceUntrusted},
		"no token":               {token: "a.b.c", code: agentbus.CodeUnauthenticated, logged: identity.EvidenceMalformed},
		"evidence is no hop":     {token: attest(t, s.key, s.attests().header, s.attests().claims), code: agentbus.CodeUnauthenticated, logged: identity.EvidenceUnsupported},
		"X10 sibling, by aud":    {token: next, change: func(f *agentbus.HopFor) { f.Audiences = []string{"@b@bots.example.com"} }, code: agentbus.CodeUnauthenticated, logged: identity.EvidenceDomainMismatch},
		"X10 sibling, by mid":    {token: next, change: func(f *agentbus.HopFor) { f.MessageID = "m2" }, code: agentbus.CodeUnauthenticated, logged: identity.EvidenceChallengeMismatch},
		"X10 sibling, by sender": {token: next, change: func(f *agentbus.HopFor) { f.Sender = "relay" }, code: agentbus.CodeUnauthenticated, logged: identity.EvidenceOtherController},
		"X11 replay":             {token: next, again: true, code: agentbus.CodeUnauthenticated, logged: identity.EvidenceReplayed},
		"X11 store down":         {token: next, broken: true, code: agentbus.CodeUnauthenticated, logged: identity.EvidenceReplayStoreFailed},
		"expired":                {token: next, late: 661 * time.Second, code: agentbus.CodeUnauthenticated, logged: identity.EvidenceExpired},
		"60 s late":              {token: next, late: 660 * time.Second},
		"X2 plain reset to 1":    {token: next, change: func(f *agentbus.HopFor) { f.Plain = &agentbus.AgentChain{Hop: 1, MaxHops: 4} }, code: agentbus.CodeInvalidLineage},
		"X3 plain has more hops": {token: next, change: func(f *agentbus.HopFor) { f.MaxHops, f.Plain = 10, &agentbus.AgentChain{Hop: 2, MaxHops: 9} }, code: agentbus.CodeInvalidLineage},
		"beyond the local limit": {token: next, change: func(f *agentbus.HopFor) { f.MaxHops = 1 }, code: agentbus.CodeChainFinal},
		"C12 on the way already": {token: next, change: func(f *agentbus.HopFor) { f.Known = []string{s.url + "#agent:a"} }, code: agentbus.CodeCycleRefused},
		"without a plain chain":  {token: next, change: func(f *agentbus.HopFor) { f.Plain = nil }},
	} {
		now = at
		ours, used, log := hops(newSlack(t), identity.HopIssuer{Issuer: s.url, Caller: "bus-s"})
		f := good
		if c.change != nil {
			c.change(&f)
		}
		if c.again {
			_, _ = ours.Verify(t.Context(), c.token, f)
		}
		used.broken, now = c.broken, at.Add(c.late)
		_, err := ours.Verify(t.Context(), c.token, f)
		if agentbus.CodeOf(err) != c.code || c.logged != "" && !strings.Contains(log.String(), "code="+string(c.logged)) {
			t.Errorf("%s: %v, logged %s", name, err, log.String())
		}
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

var _ identity.Proofs = (*proofs)(nil)
