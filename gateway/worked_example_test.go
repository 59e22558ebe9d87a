package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
)

// hop is what the protocol says at one hop.
func hop(h http.Header) map[string]string {
	said := map[string]string{}
	for _, name := range []string{
		agentbus.HeaderForwardedAuthorization, agentbus.HeaderForwardedDepth, agentbus.HeaderRunID, agentbus.HeaderTurnID,
		agentbus.HeaderParentTurnID, agentbus.HeaderSpeaker, agentbus.HeaderPath, "authorization",
	} {
		if v := h.Get(name); v != "" {
			said[name] = v
		}
	}
	return said
}

// post makes a call as an agent's runtime does: straight to a URL, with the
// lineage of the next hop.
func post(t *testing.T, url, body, authorization string, l agentbus.Lineage) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	l.SetHeaders(r.Header)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	client := http.Client{Transport: transport(t)}
	resp, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(said)
}

// TestWorkedExample is the example of the protocol's text over real sockets:
// user → router → researcher, whose runtime calls critic (P8, P9).
func TestWorkedExample(t *testing.T) {
	t.Parallel()
	critic := newAgent(t, "critic", nil)
	researcher := newAgent(t, "researcher", func(w http.ResponseWriter, r *http.Request) {
		in, err := agentbus.ParseLineage(r.Header)
		if err != nil {
			t.Error(err)
		}
		out, err := in.Next(in.Run.Turn(0, "critic"), "critic")
		if err != nil {
			t.Error(err)
		}
		if status, body := post(t, critic.URL.String()+"/chat/completions", ask("critic"), "", out); status != http.StatusOK || body != completion {
			t.Errorf("critic said %d %s", status, body)
		}
		answerWith(http.StatusOK, completion)(w, r)
	})
	router := newBus(t, nil, researcher)
	for range 2 { // the second is a retry: nobody is called again
		got := router.send(http.MethodPost, chatRoute, ask("bridge/sandbox/researcher"), append(turn("conv_abc", "conv_abc.t0.researcher"), asAlice, depth+"0", "x-tangle-speaker: researcher")...)
		if got.status != http.StatusOK || got.body != completion {
			t.Fatal(got)
		}
	}
	for i, want := range []map[string]string{
		{
			"x-tangle-forwarded-authorization": "Bearer " + aliceKey, "x-tangle-forwarded-depth": "1",
			"x-tangle-runid": "conv_abc", "x-tangle-turnid": "conv_abc.t0.researcher", "x-tangle-speaker": "researcher",
		},
		{
			"x-tangle-forwarded-authorization": "Bearer " + aliceKey, "x-tangle-forwarded-depth": "2",
			"x-tangle-runid": "conv_abc", "x-tangle-turnid": "conv_abc.t0.critic", "x-tangle-speaker": "critic",
			"x-tangle-parent-turnid": "conv_abc.t0.researcher", "x-agentbus-path": agentbus.TurnKey{ID: "conv_abc.t0.researcher"}.PathBelow(),
		},
	} {
		to := []*agent{researcher, critic}[i]
		if diff := cmp.Diff(want, hop(to.next(t).header)); diff != "" {
			t.Errorf("%s heard (-want +heard):\n%s", to.Name, diff)
		}
		if n := to.executions(); n != 1 {
			t.Errorf("%s was called %d times", to.Name, n)
		}
	}
	if r := router.one("conv_abc", agentbus.CallSettled); r.Depth != 0 || r.Payer != "alice" || r.Replays != 1 {
		t.Errorf("recorded as %+v", r)
	}
}

// TestChain: P9 and P10, agents that call each other through the gateway: each
// nesting counts 2, one for the runtime and one for the gateway, until the
// gateway refuses at 4. The origin pays for what was served, and for nothing else.
func TestChain(t *testing.T) {
	t.Parallel()
	var b *bus
	refusal := make(chan string, 1)
	relay := func(next string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			in, err := agentbus.ParseLineage(r.Header)
			if err != nil {
				t.Error(err)
			}
			out, err := in.Next(in.Run.Turn(0, agentbus.Speaker(next)), agentbus.Speaker(next))
			if err != nil {
				t.Error(err)
			}
			status, body := post(t, b.url+chatRoute, ask(next), "Bearer "+relayKey, out)
			if status != http.StatusOK {
				refusal <- fmt.Sprint(status, " ", body)
			}
			answerWith(http.StatusOK, completion)(w, r)
		}
	}
	agents := []*agent{newAgent(t, "a", relay("b")), newAgent(t, "b", relay("c")), newAgent(t, "c", nil)}
	for _, a := range agents {
		a.Price = price
	}
	b = newBus(t, nil, agents...)
	if got := b.call("a", turn("conv", "conv.t0.a")...); got.status != http.StatusOK {
		t.Fatal(got)
	}
	said := <-refusal
	if !strings.HasPrefix(said, "429 ") || gjson.Get(said[4:], "error.message").Str != "depth 4 reaches the limit of 4: this call would be hop 5 of run conv" {
		t.Errorf("the chain ended with %s", said)
	}
	if n := agents[2].executions(); n != 0 {
		t.Errorf("c was called %d times, at the limit", n)
	}
	type row struct {
		Agent, Turn, Parent, Payer, Caller string
		Depth                              int
		State                              agentbus.CallState
		Cost                               agentbus.Micros
	}
	var rows []row
	for _, c := range b.await("conv", func(calls []agentbus.CallRecord) bool {
		return len(calls) == 3 && calls[0].State == agentbus.CallSettled
	}) {
		rows = append(rows, row{c.Agent, string(c.TurnKey.ID), string(c.Parent), string(c.Payer), c.Caller, c.Depth, c.State, c.Cost})
	}
	want := []row{
		{"a", "conv.t0.a", "", "alice", "alice", 0, agentbus.CallSettled, priced},
		{"b", "conv.t0.b", "conv.t0.a", "alice", "relay", 2, agentbus.CallSettled, priced},
		{"c", "conv.t0.c", "conv.t0.b", "alice", "relay", 4, agentbus.CallRefused, 0},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("the run's records (-want +got):\n%s", diff)
	}
}
