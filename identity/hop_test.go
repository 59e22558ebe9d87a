package identity_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
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
	now := at
	hops := func(s *slack, trust ...identity.HopIssuer) (*identity.Hops, *proofs, *strings.Builder) {
		used, log := &proofs{}, &strings.Builder{}
		h, err := identity.NewHops(identity.HopsConfig{
			Signer: s.signer(t), Trust: trust, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Proofs: used, Logger: logTo(log), Now: func() time.Time { return now },
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
	token, _, err := theirs.Sign(first)
	if err != nil {
		t.Fatal(err)
	}
	second := first
	second.Before, second.Caller, second.Chain, second.Left, second.Payer = token, "agent:a", agentbus.AgentChain{Hop: 2, MaxHops: 64}, agentbus.HopLeft{Calls: 20}, "mallory"
	next, _, err := theirs.Sign(second)
	if err != nil {
		t.Fatal(err)
	}
	read, err := theirs.Read(t.Context(), next)
	want := agentbus.Hop{
		Issuer: s.url, Audience: "@a@bots.example.com", Subject: "alice", Issued: at.Unix(), Expires: at.Unix() + 600, ID: read.ID, Chain: "r", RootContext: "chat",
		Hop: 2, MaxHops: 4, Path: []string{s.url + "#conversation:x", s.url + "#agent:a"}, Before: identity.HopDigest(token),
		Left: agentbus.HopLeft{Calls: 10, Deadline: at.Unix() + 60}, MessageID: "m1",
		Actor: &agentbus.HopActor{Subject: s.url + "#agent:a", Actor: &agentbus.HopActor{Subject: s.url + "#conversation:x"}},
	}
	if diff := cmp.Diff(want, read); diff != "" || err != nil {
		t.Errorf("%v, the second hop (-want +got):\n%s", err, diff)
	}
	claims := object{}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(next, ".")[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		t.Fatal(err)
	}
	claims["nbf"] = at.Unix() + 61
	later := attest(t, s.key, object{"alg": "EdDSA", "typ": identity.HopType, "kid": s.url + "#k1"}, claims)
	delete(claims, "nbf")
	delete(claims, "act")
	silent := attest(t, s.key, object{"alg": "EdDSA", "typ": identity.HopType, "kid": s.url + "#k1"}, claims)
	claims["act"] = object{"sub": s.url + "#agent:a", "act": object{"sub": s.url + "#mallory"}}
	belied := attest(t, s.key, object{"alg": "EdDSA", "typ": identity.HopType, "kid": s.url + "#k1"}, claims)
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
		"an end of line":         {token: next + "\n", code: agentbus.CodeUnauthenticated, logged: identity.EvidenceMalformed},
		"not before 61 s":        {token: later, code: agentbus.CodeUnauthenticated, logged: identity.EvidenceNotYetValid},
		"not before 60 s":        {token: later, late: time.Second},
		"names no actors":        {token: silent},
		"names other actors":     {token: belied, code: agentbus.CodeUnauthenticated, logged: identity.EvidenceMalformed},
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

// C16: the hops that a run has kept prove its calls as they are; what was taken out,
// put in from elsewhere, or does not follow from the hop before it, is named.
func TestVerifyRun(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	h, err := identity.NewHops(identity.HopsConfig{Signer: s.signer(t), Proofs: &proofs{}})
	if err != nil {
		t.Fatal(err)
	}
	// A run of five calls: x asks a, a asks b, c and d, x asks e.
	run := func(run agentbus.RunID) (kept []agentbus.HopToken, calls []agentbus.CallRecord) {
		for i, c := range []struct {
			caller string
			hop    int
			before int
		}{{"x", 1, -1}, {"agent:a", 2, 0}, {"agent:a", 2, 0}, {"agent:a", 2, 0}, {"x", 1, -1}} {
			id, when := "req_"+string(run)+strconv.Itoa(i), at.Add(time.Duration(i)*time.Second)
			next := agentbus.NextHop{ID: id, Audience: "@x@x.example", Caller: c.caller, Payer: "alice", Chain: agentbus.AgentChain{Hop: c.hop, MaxHops: 4}, Run: run, Left: agentbus.HopLeft{Calls: 5}}
			if c.before >= 0 {
				next.Before = kept[c.before].Token
			}
			kept = append(kept, agentbus.HopToken{Run: run, RequestID: id, Sent: true, At: when, Token: must(h.Sign(next))})
			call := agentbus.CallRecord{RequestID: id, Caller: c.caller, State: agentbus.CallSettled, Attempts: 1, Began: when.Add(-time.Millisecond), Chain: &next.Chain}
			call.Payer = "alice"
			calls = append(calls, call)
		}
		return kept, calls
	}
	other, _ := run("q")
	resigned := func(change func(claims object)) func(kept []agentbus.HopToken) []agentbus.HopToken {
		return func(kept []agentbus.HopToken) []agentbus.HopToken {
			claims := object{}
			payload, err := base64.RawURLEncoding.DecodeString(strings.Split(kept[2].Token, ".")[1])
			if err != nil || json.Unmarshal(payload, &claims) != nil {
				t.Error("no token")
			}
			change(claims)
			kept[2].Token = attest(t, s.key, object{"alg": "EdDSA", "typ": identity.HopType, "kid": s.url + "#k1"}, claims)
			return kept
		}
	}
	for name, c := range map[string]struct {
		change   func(kept []agentbus.HopToken) []agentbus.HopToken
		fault    string
		unsigned int
	}{
		"as it was":              {},
		"the first is gone":      {change: func(k []agentbus.HopToken) []agentbus.HopToken { return k[1:] }, fault: "was not kept"},
		"one between is gone":    {change: func(k []agentbus.HopToken) []agentbus.HopToken { return slices.Delete(k, 2, 3) }, fault: "its hop is gone", unsigned: 1},
		"one between is another": {change: func(k []agentbus.HopToken) []agentbus.HopToken { k[2].RequestID = "req_x"; return k }, fault: "not the one hop of its call"},
		"signed before or after": {change: func(k []agentbus.HopToken) []agentbus.HopToken { return k[:4] }, unsigned: 1},
		"two change places": {change: func(k []agentbus.HopToken) []agentbus.HopToken {
			k[1].Token, k[2].Token = k[2].Token, k[1].Token
			return k
		}, fault: "not the one hop of its call"},
		"one stands twice": {change: func(k []agentbus.HopToken) []agentbus.HopToken { return append(k, k[4]) }, fault: "not the one hop of its call"},
		"its message came again": {change: func(k []agentbus.HopToken) []agentbus.HopToken {
			return append(k, agentbus.HopToken{Run: "r", RequestID: k[4].RequestID, Sent: true, At: k[4].At, Token: must(h.Sign(agentbus.NextHop{
				ID: agentbus.HopID(k[4].RequestID, 2), Audience: "@x@x.example", Caller: "x", Payer: "alice", Chain: agentbus.AgentChain{Hop: 1, MaxHops: 4}, Run: "r", Left: agentbus.HopLeft{Calls: 5},
			}))})
		}},
		"all of another run": {change: func(k []agentbus.HopToken) []agentbus.HopToken {
			for i := range k {
				k[i].Token = other[i].Token
			}
			return k
		}, fault: "not the one hop of its call"},
		"another payer": {change: resigned(func(o object) { o["sub"] = "mallory" }), fault: "another payer than the hop before"},
		"another chain": {change: resigned(func(o object) { o["txn"] = "q" }), fault: "another chain"},
		"another way": {change: resigned(func(o object) {
			o["path"] = []string{"y", s.url + "#agent:a"}
			delete(o, "act")
		}), fault: "another way"},
		"other actors": {change: resigned(func(o object) { o["act"] = object{"sub": "y"} }), fault: "other actors"},
		"more hops":    {change: resigned(func(o object) { o["max_hops"] = 5 }), fault: "allows more"},
		"more time":    {change: resigned(func(o object) { o["exp"] = at.AddDate(20, 0, 0).Unix() }), fault: "allows more"},
		"more calls":   {change: resigned(func(o object) { o["budget_left"] = object{"calls": 6} }), fault: "allows more"},
		"another run, as its first": {change: resigned(func(o object) {
			delete(o, "prv")
			o["txn"] = "q"
		}), fault: "of another run"},
	} {
		kept, calls := run("r")
		if c.change != nil {
			kept = c.change(kept)
		}
		v := h.VerifyRun(t.Context(), "r", kept, calls)
		if c.fault == "" && v.Fault != "" || !strings.Contains(v.Fault, c.fault) || v.Unsigned != c.unsigned {
			t.Errorf("%s: %q, %d calls without a hop", name, v.Fault, v.Unsigned)
		}
	}
}

// C16: a call whose record says that its hop was signed has lost it, wherever in the run
// it stood; one without that may have been made while hops were not signed.
func TestVerifyRunWithoutItsLastHop(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	h, err := identity.NewHops(identity.HopsConfig{Signer: s.signer(t), Proofs: &proofs{}})
	if err != nil {
		t.Fatal(err)
	}
	var kept []agentbus.HopToken
	var calls []agentbus.CallRecord
	for _, id := range []string{"req_0", "req_1"} {
		chain := agentbus.AgentChain{Hop: 1, MaxHops: 4}
		kept = append(kept, agentbus.HopToken{Run: "r", RequestID: id, Sent: true, At: at, Token: must(h.Sign(agentbus.NextHop{ID: id, Audience: "@x@x.example", Caller: "x", Payer: "alice", Chain: chain, Run: "r"}))})
		call := agentbus.CallRecord{RequestID: id, Caller: "x", State: agentbus.CallSettled, Attempts: 1, Began: at, Chain: &chain, Notes: []string{agentbus.NoteHopSigned}}
		call.Payer = "alice"
		calls = append(calls, call)
	}
	const gone = "request req_1 was signed, as its record says, and its hop is gone"
	for name, c := range map[string]struct {
		kept  []agentbus.HopToken
		notes []string
		fault string
	}{
		"as it was":                 {kept, calls[1].Notes, ""},
		"the last is gone":          {kept[:1], calls[1].Notes, gone},
		"the last was never signed": {kept[:1], nil, ""},
	} {
		calls[1].Notes = c.notes
		if v := h.VerifyRun(t.Context(), "r", c.kept, calls); v.Fault != c.fault || v.Unsigned != 2-len(c.kept) {
			t.Errorf("%s: %+v", name, v)
		}
		calls[1].Notes = calls[0].Notes
	}
	if v := h.VerifyRun(t.Context(), "r", nil, calls); v.Fault == "" {
		t.Errorf("all are gone: %+v", v)
	}
}

// C16: a way that is too long to be told twice is told once.
func TestC16ALongWay(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	h, err := identity.NewHops(identity.HopsConfig{Signer: s.signer(t), Proofs: &proofs{}})
	if err != nil {
		t.Fatal(err)
	}
	var token string
	for hop := range agentbus.MaxChainHops {
		token = must(h.Sign(agentbus.NextHop{
			Audience: "@x@x.example", Caller: "agent:of-a-longer-name", Payer: "alice", Run: "r", Before: token, Chain: agentbus.AgentChain{Hop: hop + 1, MaxHops: agentbus.MaxChainHops},
		}))
		got, err := h.Read(t.Context(), token)
		if told := got.Actor != nil; err != nil || len(token) > 8<<10 || told && !got.Actor.Says(got.Path) || hop < 16 && !told {
			t.Fatalf("hop %d: %d bytes, %v", hop+1, len(token), err)
		}
	}
}

// C16: a hop counts no longer than the one before it. Behind one that has expired, it
// is for the record only; the clock of who reads it may be slow until then.
func TestC16BehindAnExpiredHop(t *testing.T) {
	t.Parallel()
	s := newSlack(t)
	now := at
	h, err := identity.NewHops(identity.HopsConfig{Signer: s.signer(t), Proofs: &proofs{}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	next := agentbus.NextHop{Audience: "@a@bots.example.com", Caller: "x", Payer: "alice", Chain: agentbus.AgentChain{Hop: 1, MaxHops: 4}, Run: "r"}
	first := must(h.Sign(next))
	next.Before, next.Caller, next.Chain.Hop = first, "agent:a", 2
	for _, late := range []int{600, 660, 661} {
		want := late <= 660
		now = at.Add(time.Duration(late) * time.Second)
		token, counts, err := h.Sign(next)
		if err != nil || counts != want {
			t.Errorf("after %d s: %v, %v", late, counts, err)
		}
		if _, err := h.Verify(t.Context(), token, agentbus.HopFor{Audiences: []string{"@a@bots.example.com"}, Sender: "agent:a", MaxHops: 4}); (err == nil) != want {
			t.Errorf("after %d s: %v", late, err)
		}
		if _, err := h.Read(t.Context(), token); err != nil {
			t.Errorf("after %d s, for the record: %v", late, err)
		}
	}
}

func must(s string, _ bool, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

var _ identity.Proofs = (*proofs)(nil)
