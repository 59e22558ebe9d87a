package gateway_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/httpx"
)

// signing starts a bus that signs hops and takes those of another, which is called up
// and calls as relay.
func signing(t *testing.T, change func(*gateway.Config), agents ...*agent) (b *bus, up *identity.Hops) {
	t.Helper()
	const issuer = "https://up.example.com"
	theirs := signerOf(t, issuer)
	up, err := identity.NewHops(identity.HopsConfig{Signer: theirs, Proofs: unproved{}, Client: http.DefaultClient})
	if err != nil {
		t.Fatal(err)
	}
	b = newBus(t, func(g *gateway.Config) {
		store := g.Ledger.(interface { //nolint:errcheck // the store of every bus here
			identity.Proofs
			gateway.HopKeeper
		})
		hops, err := identity.NewHops(identity.HopsConfig{
			Signer: signerOf(t, "https://here.example.com"), Proofs: store, Client: &http.Client{Transport: cardOf(theirs.Card())},
			Trust: []identity.HopIssuer{{Issuer: issuer, Caller: "relay"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		g.Hops, g.HopKeeper, g.Issuer = hops, store, "https://here.example.com"
		if change != nil {
			change(g)
		}
	}, agents...)
	return b, up
}

// C13, C16: what a signed hop leaves holds for the call that it comes with and for all
// that is called inside of it, together; what goes beyond is refused, and nobody called.
func TestC16BudgetLeft(t *testing.T) {
	t.Parallel()
	writer, critic := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone)), newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	for _, a := range []*agent{writer, critic} {
		a.Price = agentbus.Price{Call: 10}
	}
	b, up := signing(t, nil, writer, critic)
	send := func(run, agent, message, token, metadata string, more ...string) answer {
		header := append(turn(run, run+".t0."+agent+message), asRelay, forAlice)
		if token != "" {
			header = append(header, "x-agentbus-hop: "+token)
		}
		return b.send(http.MethodPost, "/a2a/"+agent, sayAs(message, metadata), append(header, more...)...)
	}
	later := time.Now().Add(time.Hour).Unix()
	for run, c := range map[string]struct {
		left   agentbus.HopLeft
		served int // of the call and of two inside of it, one behind the other
		want   string
	}{
		"none":     {agentbus.HopLeft{}, 3, ""},
		"calls":    {agentbus.HopLeft{Calls: 2, Deadline: later}, 2, "402 -32000 BUDGET_EXCEEDED"},
		"money":    {agentbus.HopLeft{USD: 25, Deadline: later}, 2, "402 -32000 BUDGET_EXCEEDED"},
		"little":   {agentbus.HopLeft{USD: 9}, 0, "402 -32000 BUDGET_EXCEEDED"},
		"deadline": {agentbus.HopLeft{Deadline: time.Now().Add(-2 * time.Minute).Unix()}, 0, "504 -32000 DEADLINE_EXCEEDED"},
		"skew":     {agentbus.HopLeft{Deadline: time.Now().Add(-time.Second).Unix()}, 3, ""},
	} {
		token, _, err := up.Sign(agentbus.NextHop{
			Audience: writer.Audience(), Caller: "x", Payer: "alice", Chain: agentbus.AgentChain{Hop: 1, MaxHops: 9}, Run: agentbus.RunID(run), MessageID: "m0", Left: c.left,
		})
		if err != nil {
			t.Fatal(err)
		}
		got := send(run, "writer", "m0", token, `{}`)
		served := 0
		for i := range 2 {
			if got.status != http.StatusOK {
				break
			}
			served++
			inside := "x-tangle-parent-turnid: " + run + ".t0.writerm0"
			got = send(run, "critic", "m"+strconv.Itoa(i+1), "", chainOf("2", "4"), inside, depth+"1")
		}
		if got.status == http.StatusOK {
			served++
		}
		if served != c.served || c.want != "" && fault(got) != c.want {
			t.Errorf("%s: %d served, then %v", run, served, got)
		}
		if c.want != "" && (gjson.Get(got.body, "error.data.0.metadata.rule").Str != "C16" || strings.Contains(got.body, "set max_cost_usd")) {
			t.Errorf("%s: refused with %s", run, got.body)
		}
	}
	if n := writer.executions() + critic.executions(); n != 2+3+2+2+3 { // their cards were read, too
		t.Errorf("%d requests came to agents", n)
	}
}

// C13, C16: a hop that is signed says what the budgets of its call leave for it and for
// all inside of it, and the hop of a call inside no more; its record says that it was
// signed.
func TestC16ASignedHopSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	writer, critic := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone)), newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	writer.Price, critic.Price = agentbus.Price{Call: 10}, agentbus.Price{Call: 300}
	usd := agentbus.Micros(1000)
	b, _ := signing(t, func(g *gateway.Config) {
		g.Budgets = []gateway.BudgetRule{{Period: gateway.PeriodRun, USD: &usd, Strict: true}}
		g.Chain.MaxCalls = 5
	}, writer, critic)
	want := []agentbus.HopLeft{{Calls: 5, USD: 1000}, {Calls: 4, USD: 990}, {Calls: 3, USD: 690}}
	for i, agent := range []*agent{writer, critic, critic} {
		header := append(turn("r", "r.t"+strconv.Itoa(i)+".x"), asRelay, forAlice)
		if i > 0 {
			header = append(header, "x-tangle-parent-turnid: r.t0.x", depth+"1")
		}
		metadata := chainOf("1", "4")
		if i > 0 {
			metadata = chainOf("2", "4")
		}
		if got := b.send(http.MethodPost, "/a2a/"+agent.Name, sayAs("m"+strconv.Itoa(i), metadata), header...); got.status != http.StatusOK {
			t.Fatal(got)
		}
		hop := payloadOf(t, agent.next(t).header.Get("X-Agentbus-Hop"))
		if left := hop.Left; left.Calls != want[i].Calls || left.USD != want[i].USD || left.Deadline == 0 || !hop.Actor.Says(hop.Path) {
			t.Errorf("call %d: %+v, want %+v; %+v", i, hop.Left, want[i], hop.Actor)
		}
	}
	for _, c := range b.calls("r") {
		if !strings.Contains(strings.Join(c.Notes, " "), agentbus.NoteHopSigned) {
			t.Errorf("the record says %v", c.Notes)
		}
	}
}

// C16: a call that is over before its agent was sent a message is proved by a hop, too.
func TestC16HopOfACallWithoutAMessage(t *testing.T) {
	t.Parallel()
	writer, old := newA2A(t, "writer", answerWith(http.StatusOK, rpcDone)), newA2A(t, "old", nil)
	old.A2A.Bridge = httpx.Memory(answerWith(http.StatusBadRequest, `{"error":{"code":"unsupported_version"}}`)) // its card says so
	b, _ := signing(t, nil, writer, old)
	if got := b.send(http.MethodPost, "/a2a/writer", sayAs("m", chainOf("1", "4")), append(turn("r", "r.t0.x"), asRelay, forAlice)...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	inside := append(turn("r", "r.t1.x"), asRelay, forAlice, "x-tangle-parent-turnid: r.t0.x", depth+"1")
	if got := b.send(http.MethodPost, chatRoute, ask("old"), inside...); gjson.Get(got.body, "error.code").Str != "unsupported_version" {
		t.Fatal(got)
	}
	kept, err := b.store.HopTokens(t.Context(), "r")
	if err != nil || len(kept) != 2 || payloadOf(t, kept[1].Token).Before != identity.HopDigest(kept[0].Token) {
		t.Errorf("%+v, %v", kept, err)
	}
	for _, c := range b.calls("r") {
		if !slices.Contains(c.Notes, agentbus.NoteHopSigned) {
			t.Errorf("the record says %v", c.Notes)
		}
	}
}
