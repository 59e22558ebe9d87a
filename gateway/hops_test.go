package gateway_test

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// inChain is a call of a driver of this process at a place in a chain.
func (b *bus) inChain(c *agentbus.AgentChain, body string, l agentbus.Lineage) answer {
	return b.inChainAt(c, chatRoute, body, l)
}

func (b *bus) inChainAt(c *agentbus.AgentChain, route, body string, l agentbus.Lineage) answer {
	ctx := gateway.WithInProcess(b.t.Context(), gateway.InProcess{Caller: agentbus.Principal{ID: "driver"}, Payer: "alice", Chain: c})
	return b.inProcessAt(ctx, route, body, l)
}

// C8, C11, X7: this bus knows at which hop a turn is served. A call made inside
// of it is the next one, whatever its dialect can carry, and a final hop calls
// nobody: the agent is not reached.
func TestX7AFinalHopCallsNobody(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	a.Cue = true
	b := newBus(t, nil, a)
	for hop := range 4 {
		c := agentbus.AgentChain{Hop: hop + 1, MaxHops: 4, Final: hop == 3}
		run := "r" + string(rune('1'+hop))
		outer := agentbus.Lineage{Run: agentbus.RunID(run), Turn: agentbus.TurnID(run + ".t0.critic"), Depth: 1}
		if got := b.inChain(&c, ask("critic"), outer); got.status != http.StatusOK {
			t.Fatalf("hop %d: %v", hop+1, got)
		}
		inner := b.send(http.MethodPost, chatRoute, ask("critic")+" ", append(append(turn(run, "inner"), within(string(outer.Turn), "", 3)...), asAlice)...)
		if c.Final {
			refused(t, "inside the final hop", inner, http.StatusTooManyRequests, agentbus.CodeChainFinal)
			continue
		}
		if inner.status != http.StatusOK {
			t.Errorf("inside hop %d: %v", hop+1, inner)
		}
		records := b.calls(run)
		want := agentbus.AgentChain{Hop: hop + 2, MaxHops: 4, Final: hop == 2}
		if diff := cmp.Diff([]*agentbus.AgentChain{&c, &want}, []*agentbus.AgentChain{records[0].Chain, records[1].Chain}); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	}
	if n := a.executions(); n != 7 {
		t.Errorf("the agent was called %d times, want 7", n)
	}
}

// C9: a model behind the gateway is told where it answers, before all else it is
// told; an agent that is none, and a call without a chain, get the bytes as they
// came. The cue is no part of what was asked (G20).
func TestC9CuesOnTheWire(t *testing.T) {
	t.Parallel()
	const final = "You are responding as the FINAL hop (4 of 4). Synthesize a conclusion \u2014 do not invite another agent."
	model, other := newAgent(t, "model", nil), newAgent(t, "other", nil)
	model.Cue = true
	b := newBus(t, nil, model, other)
	c := agentbus.AgentChain{Hop: 4, MaxHops: 4, Final: true}
	at := agentbus.Lineage{Run: "r", Turn: "r.t0.model", Depth: 1}
	if got := b.inChain(&c, ask("model"), at); got.status != http.StatusOK {
		t.Fatal(got)
	}
	body := model.next(t).body
	if m := gjson.Get(body, "messages"); m.Get("0.role").Str != "system" || m.Get("0.content").Str != final || m.Get("#").Int() != gjson.Get(ask("model"), "messages.#").Int()+1 {
		t.Errorf("the model was sent %s", body)
	}
	if got := b.inChain(nil, ask("model"), at); got.header.Get("X-Agentbus-Replay") != "hit" {
		t.Errorf("the same turn again: %v", got)
	}
	if b.inChain(nil, ask("model"), agentbus.Lineage{Run: "r", Turn: "r.t1.model"}); model.next(t).body != ask("model") {
		t.Error("without a chain the bytes changed")
	}
	if b.inChain(&c, ask("other"), agentbus.Lineage{Run: "r", Turn: "r.t2.other"}); other.next(t).body != ask("other") {
		t.Error("the bytes to an agent that is no model changed")
	}
}

// C9: wherever a body has a place for it, and nowhere else.
func TestC9WithCue(t *testing.T) {
	t.Parallel()
	const cue = `you "are"`
	for _, c := range []struct {
		responses bool
		in, want  string
	}{
		{false, `{"messages":[{"role":"user"}],"model":"m"}`, `{"messages":[{"role":"system","content":"you \"are\""},{"role":"user"}],"model":"m"}`},
		{false, ` { "a" : {"messages":[]} , "messages" : [ ] }`, ` { "a" : {"messages":[]} , "messages" : [ {"role":"system","content":"you \"are\""}] }`},
		{false, `{"model":"m"}`, `{"model":"m"}`},
		{false, `{"messages":"x"}`, `{"messages":"x"}`},
		{true, `{"model":"m"}`, `{"instructions":"you \"are\"","model":"m"}`},
		{true, `{"instructions":"be\n","model":"m"}`, `{"instructions":"you \"are\"\n\nbe\n","model":"m"}`},
		{true, `{"model":"m","instructions":null}`, `{"model":"m","instructions":"you \"are\""}`},
	} {
		got := gateway.WithCue([]byte(c.in), c.responses, cue)
		if diff := cmp.Diff(c.want, string(got)); diff != "" || !gjson.ValidBytes(got) {
			t.Errorf("%s (-want +got):\n%s", c.in, diff)
		}
	}
}

// C6, C10, C11, X1, X2, X3: what a call may claim on a route that carries chains.
func TestX1ClaimsOnRoutesThatCarryChains(t *testing.T) {
	t.Parallel()
	chain := func(hop, most int) *agentbus.AgentChain {
		return &agentbus.AgentChain{Hop: hop, MaxHops: most, Final: hop == most}
	}
	const lineage, final = agentbus.CodeInvalidLineage, agentbus.CodeChainFinal
	for name, c := range map[string]struct {
		absent  gateway.AbsentChain
		of      map[string]gateway.AbsentChain
		user    bool
		depth   int
		claim   *agentbus.AgentChain
		known   bool
		parent  *agentbus.AgentChain
		want    *agentbus.AgentChain
		refused agentbus.Code
	}{
		"a user without a chain":                   {user: true},
		"a user, although agents must":             {user: true, absent: gateway.AbsentReject},
		"X1 parent known: floor":                   {known: true, parent: chain(1, 4), refused: lineage},
		"X1 parent known and final":                {known: true, parent: chain(4, 4), refused: final},
		"X1 allow":                                 {absent: gateway.AbsentAllow},
		"X1 final":                                 {absent: gateway.AbsentFinal, want: chain(1, 1)},
		"X1 reject":                                {absent: gateway.AbsentReject, refused: lineage},
		"C10 per caller":                           {of: map[string]gateway.AbsentChain{"relay": gateway.AbsentReject}, refused: lineage},
		"C10 of another caller":                    {of: map[string]gateway.AbsentChain{"other": gateway.AbsentReject}},
		"C10 a parent without a chain is no agent": {absent: gateway.AbsentReject, known: true},
		"C10 depth 2":                              {depth: 2, absent: gateway.AbsentReject, want: chain(2, 4)},
		"C10 depth 5":                              {depth: 5, refused: final},
		"X2 reset to 1":                            {claim: chain(1, 4), known: true, parent: chain(2, 4), refused: lineage},
		"C11 as its parent":                        {claim: chain(2, 4), known: true, parent: chain(2, 4), refused: lineage},
		"C11 the next":                             {claim: chain(3, 4), known: true, parent: chain(2, 4), want: chain(3, 4)},
		"C11 more hops than its parent":            {claim: chain(3, 64), known: true, parent: chain(2, 3), want: chain(3, 3)},
		"X3 60 is clamped":                         {claim: chain(1, 60), want: chain(1, 4)},
		"C6 beyond the local limit":                {claim: chain(5, 60), refused: final},
		"X4 final early":                           {claim: &agentbus.AgentChain{Hop: 1, MaxHops: 4, Final: true}, want: &agentbus.AgentChain{Hop: 1, MaxHops: 4, Final: true}},
		"C6 final here":                            {claim: &agentbus.AgentChain{Hop: 4, MaxHops: 60}, want: chain(4, 4)},
	} {
		caller := agentbus.Principal{ID: "relay", InterAgent: !c.user}
		got, err := gateway.HopOf(gateway.ChainRules{Absent: c.absent, AbsentOf: c.of}, caller, agentbus.Lineage{Depth: c.depth, Chain: c.claim}, c.known, c.parent)
		if agentbus.CodeOf(err) != c.refused {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
			continue
		}
		if err == nil && !cmp.Equal(c.want, got) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// C12, X9: an agent by another name is the same one, when it has the same
// address or is reached at the same URL as the same model; other models behind
// one URL are other agents.
func TestX9SecondNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(one, two *gateway.Target)
		code   agentbus.Code
	}{
		"one URL":    {func(one, two *gateway.Target) { two.URL = one.URL }, agentbus.CodeCycleRefused},
		"two models": {func(one, two *gateway.Target) { two.URL, two.Model = one.URL, "large" }, ""},
		"one address": {func(one, two *gateway.Target) {
			one.Address, _ = agentbus.ParseAddress("a@example.com")
			two.Address, _ = agentbus.ParseAddress("@A@EXAMPLE.com")
		}, agentbus.CodeCycleRefused},
		"nothing same": {func(*gateway.Target, *gateway.Target) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := newAgent(t, "one", nil), newAgent(t, "two", nil)
			c.change(one.Target, two.Target)
			b := newBus(t, nil, one, two)
			const route = "/chat/completions"
			if got := b.send(http.MethodPost, "/agents/one"+route, ask("x"), append(turn("r", "r.t0.one"), asAlice)...); got.status != http.StatusOK {
				t.Fatal(got)
			}
			inner := append(append(turn("r", "r.t0.two"), within("r.t0.one", "", 2)...), asAlice)
			got := b.send(http.MethodPost, "/agents/two"+route, ask("x"), inner...)
			if got.code() != c.code || c.code != "" && two.executions() > 0 {
				t.Errorf("%v, want %q; %d executions", got, c.code, two.executions())
			}
		})
	}
}

// C12, X9: over A2A too the same request is a cycle: where it stands in its chain
// is no part of it. Another message is another request.
func TestX9OverA2A(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", answerWith(http.StatusOK, `{"jsonrpc":"2.0","id":"r1","result":{"message":{"messageId":"a"}}}`))
	b := newBus(t, nil, a)
	said := func(message, metadata string) string {
		return `{"message":{"messageId":"` + message + `","metadata":` + metadata + `,"parts":[{"text":"hi"}]}}`
	}
	at := func(hop, depth string) string {
		return `{"agentbus":{"x-tangle-forwarded-depth":"` + depth + `"},"mentionable":{"agent_chain":{"hop":` + hop + `,"max_hops":4},"recipient_capabilities":{"agent_chain":{"hop":` + hop + `,"max_hops":4}}}}`
	}
	if got := b.send(http.MethodPost, "/a2a/critic", rpc("r1", "SendMessage", said("m1", at("1", "0"))), append(turn("r", "r.t0.critic"), asAlice)...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	inner := append(lines("x-tangle-runid: r", "x-tangle-parent-turnid: r.t0.critic"), asAlice)
	if got := b.send(http.MethodPost, "/a2a/critic", rpc("r2", "SendMessage", said("m1", at("2", "2"))), append(inner, "x-tangle-turnid: r.t0.two")...); fault(got) != "429 -32000 CYCLE_REFUSED" {
		t.Error(got)
	}
	if n := a.executions(); n != 2 {
		t.Errorf("%d requests, one of them for the card", n)
	}
	if got := b.send(http.MethodPost, "/a2a/critic", rpc("r2", "SendMessage", said("m2", at("2", "2"))), append(inner, "x-tangle-turnid: r.t1.two")...); got.status != http.StatusOK {
		t.Error(got)
	}
}

// C13, X12: a tree of calls stops at max_calls, whatever its width; the ledger
// has exactly as many, and one charge for each. A retry is none of them (X13).
func TestX12FanOutStopsAtMaxCalls(t *testing.T) {
	t.Parallel()
	const most, branches = 7, 20
	a := newAgent(t, "critic", nil)
	a.Price = price
	b := newBus(t, func(c *gateway.Config) { c.Chain.MaxCalls = most }, a)
	at := func(i int) agentbus.Lineage {
		return agentbus.Lineage{Run: "r", Turn: agentbus.RunID("r").Turn(i, "critic"), Parent: "r.t0.up", Depth: 2}
	}
	c := agentbus.AgentChain{Hop: 2, MaxHops: 4}
	answers := make([]answer, branches)
	var asked sync.WaitGroup
	for i := range answers {
		asked.Go(func() { answers[i] = b.inChain(&c, ask("critic"), at(i)) })
	}
	asked.Wait()
	for i, got := range answers {
		switch got.status {
		case http.StatusOK:
			if again := b.inChain(&c, ask("critic"), at(i)); again.header.Get("X-Agentbus-Replay") != "hit" {
				t.Errorf("X13, the same turn again: %v", again)
			}
		default:
			refused(t, "beyond max_calls", got, http.StatusTooManyRequests, agentbus.CodeChainFinal)
		}
	}
	var cost agentbus.Micros
	n := 0
	for _, r := range b.calls("r") {
		if cost += r.Cost; r.State == agentbus.CallSettled {
			n++
		}
	}
	if n != most || a.executions() != most || cost != most*priced {
		t.Errorf("%d settled, %d executed, %d charged", n, a.executions(), cost)
	}
}

// C13, X12: what agents call inside of a turn that this bus knows is counted, too,
// where nobody speaks of a chain; what users call is not.
func TestX12CallsWithoutAChainAreCounted(t *testing.T) {
	t.Parallel()
	const most = 3
	up, down := newAgent(t, "up", nil), newAgent(t, "down", nil)
	b := newBus(t, func(c *gateway.Config) { c.Chain.MaxCalls = most }, up, down)
	for i := range most + 1 { // a driver elsewhere, for a user
		id := string(agentbus.RunID("r").Turn(i, "up"))
		if got := b.send(http.MethodPost, chatRoute, ask("up"), append(turn("r", id), asAlice)...); got.status != http.StatusOK {
			t.Fatal(got)
		}
	}
	for i := range most + 2 {
		headers := append(turn("r", string(agentbus.RunID("r").Turn(i, "down"))), "x-tangle-parent-turnid: r.t0.up", "x-tangle-forwarded-depth: 2", asAlice)
		got := b.send(http.MethodPost, chatRoute, ask("down"), headers...)
		if i >= most {
			refused(t, "beyond max_calls", got, http.StatusTooManyRequests, agentbus.CodeChainFinal)
		} else if got.status != http.StatusOK {
			t.Error(got)
		}
	}
	if n := down.executions(); n != most {
		t.Errorf("%d executions", n)
	}
}

// C7: where agents call nobody, one that answers a user calls nobody, too.
func TestC7NoHops(t *testing.T) {
	t.Parallel()
	up, down := newAgent(t, "up", nil), newAgent(t, "down", nil)
	b := newBus(t, func(c *gateway.Config) { c.Chain.MaxHops = -1 }, up, down)
	if got := b.send(http.MethodPost, chatRoute, ask("up"), append(turn("r", "r.t0.up"), asAlice)...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	inner := append(turn("r", "r.t0.down"), "x-tangle-parent-turnid: r.t0.up", "x-tangle-forwarded-depth: 2", asAlice)
	refused(t, "inside of a turn", b.send(http.MethodPost, chatRoute, ask("down"), inner...), http.StatusTooManyRequests, agentbus.CodeChainFinal)
	if n := down.executions(); n != 0 {
		t.Errorf("%d executions", n)
	}
}

// K6, K7, K9, X30: of every header there is one value on the wire; who may not
// speak for users is not believed, and agents that do not want to know are told
// nothing.
func TestK7UsersOnTheWire(t *testing.T) {
	t.Parallel()
	plain, kagent := newAgent(t, "plain", nil), newAgent(t, "kagent", nil)
	kagent.Kagent = true
	kagent.Header = http.Header{"X-Layer": {"configured"}, "X-Kagent-Root-Context-Id": {"forced"}, "X-User-Id": {"by-config"}}
	kagent.HeaderProvider = func(context.Context) http.Header {
		return http.Header{"x-layer": {"provided"}, "X-Tangle-Runid": {"forged"}, "Authorization": {"Bearer forged"}, "Connection": {"close"}}
	}
	b := newBus(t, nil, plain, kagent)
	said := lines("x-user-id: mallory", "x-kagent-source: agent", "x_user_id: mallory", "x-layer: inbound", "x-kagent-root-context-id: r", "x-kagent-parent-context-id: p")
	for _, a := range []*agent{plain, kagent} {
		got := b.send(http.MethodPost, chatRoute, ask(a.Name), append(append(turn("r", "t."+a.Name), said...), asAlice)...)
		if got.status != http.StatusOK {
			t.Fatal(got)
		}
	}
	h := plain.next(t).header
	for name := range h {
		if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "x-user-id") || name == "X-Kagent-Source" {
			t.Errorf("an agent that does not ask was told %s: %v", name, h[name])
		}
	}
	if h.Get("X-Kagent-Root-Context-Id") != "r" || h.Get("X-Kagent-Parent-Context-Id") != "p" { // K2: a gateway forwards
		t.Errorf("the contexts became %v", h)
	}
	got := kagent.next(t).header
	want := map[string][]string{
		"X-User-Id": {"by-config"}, "X-Kagent-Source": nil, "X-Layer": {"provided"}, "X-Tangle-Runid": {"r"},
		"X-Kagent-Root-Context-Id": {"forced"}, "X-Kagent-Parent-Context-Id": {"p"}, "Authorization": nil,
	}
	for name, values := range want {
		if diff := cmp.Diff(values, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if notes := b.calls("r")[0].Notes; !slices.Contains(notes, "stripped:x-user-id") || !slices.Contains(notes, "stripped:x-kagent-source") {
		t.Errorf("recorded %v", notes)
	}
	// K9: an agent that may speak for others is believed; without a word of it,
	// the user is the payer.
	kagent.Header = nil
	b = newBus(t, nil, kagent)
	for user, headers := range map[string][]string{"mallory": append(turn("k", "a"), said...), "alice": turn("k", "b")} {
		b.send(http.MethodPost, chatRoute, ask("kagent"), append(headers, asRelay, forAlice)...)
		if h := kagent.next(t).header; !cmp.Equal(h["X-User-Id"], []string{user}) || (user == "mallory") != cmp.Equal(h["X-Kagent-Source"], []string{"agent"}) {
			t.Errorf("for %s: %v", user, h)
		}
	}
}

// K3: the conversation that a request of responses names is the session of its
// caller, who tells none by itself; a root that it tells stays.
func TestK3ResponsesConversation(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a", nil)
	b := newBus(t, nil, a)
	for i, tt := range []struct {
		conversation, header string
		parent, root         string
	}{
		{`"conv_1"`, "", "conv_1", "conv_1"},
		{`{"id":"conv_2"}`, "", "conv_2", "conv_2"},
		{`"conv_3"`, "x-kagent-root-context-id: r", "conv_3", "r"},
		{`"conv_4"`, "x-kagent-parent-context-id: p", "p", ""},
		{`"é"`, "", agentbus.SessionID("é"), agentbus.SessionID("é")},
		{`null`, "", "", ""},
		{`7`, "", "", ""},
	} {
		run := "r" + strconv.Itoa(i)
		got := b.send(http.MethodPost, "/v1/responses", `{"model":"a","input":"hi","conversation":`+tt.conversation+`}`, append(slices.DeleteFunc(lines(tt.header), func(l string) bool { return l == "" }), append(turn(run, run+".t0.a"), asAlice)...)...)
		if got.status != http.StatusOK {
			t.Fatal(got)
		}
		h := a.next(t).header
		if h.Get("X-Kagent-Parent-Context-Id") != tt.parent || h.Get("X-Kagent-Root-Context-Id") != tt.root {
			t.Errorf("%s, %q: %q in %q", tt.conversation, tt.header, h["X-Kagent-Parent-Context-Id"], h["X-Kagent-Root-Context-Id"])
		}
	}
	b.send(http.MethodPost, chatRoute, `{"model":"a","messages":[],"conversation":"conv_1"}`, append(turn("c", "c.t0.a"), asAlice)...)
	if h := a.next(t).header; h.Get("X-Kagent-Root-Context-Id") != "" {
		t.Errorf("of another dialect: %v", h)
	}
}
