package gateway_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// TestCosts: G26, the charge from the agent's price and the usage told, exactly,
// rounded up once; unknown usage is estimated and marked. I1: the sum of charges
// is the sum of the settled calls.
func TestCosts(t *testing.T) {
	t.Parallel()
	usage := func(u string) string { return `{"choices":[],"usage":` + u + `}` }
	type row struct {
		price     agentbus.Price
		reported  bool // charge what the agent reports
		body      string
		cost      agentbus.Micros
		estimated bool
	}
	rows := map[string]row{
		"tokens":           {price, false, completion, priced, false},
		"free":             {agentbus.Price{}, false, completion, 0, false},
		"per call":         {agentbus.Price{Call: 5}, false, completion, 5, false},
		"rounded up":       {agentbus.Price{Input: 1}, false, usage(`{"prompt_tokens":1}`), 1, false},
		"rounded once":     {agentbus.Price{Input: 500_000, Output: 500_000}, false, usage(`{"prompt_tokens":1,"completion_tokens":1}`), 1, false},
		"cached":           {agentbus.Price{Input: 2_000_000, Cached: 1_000_000}, false, usage(`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}`), 16, false},
		"cached too many":  {agentbus.Price{Input: 2_000_000, Cached: 1_000_000}, false, usage(`{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":40}}`), 10, false},
		"reported":         {price, true, usage(`{"prompt_tokens":1,"cost":0.0000015}`), 2, false},
		"reported as 1e-3": {price, true, usage(`{"cost":1e-3}`), 1000, false},
		"reported below 0": {price, true, usage(`{"prompt_tokens":1,"cost":-1}`), 0, false},
		"reported nothing": {price, true, completion, 0, false},
		"reported as free": {price, true, usage(`{"prompt_tokens":1,"cost":0}`), 0, false},
		"only a cost":      {agentbus.Price{Input: 1_000_000}, false, usage(`{"prompt_tokens":-1,"cost":0.5}`), agentbus.Micros(len(ask("only a cost")) / 4), true},
		"half absurd":      {agentbus.Price{Input: 1_000_000}, false, usage(`{"prompt_tokens":-5,"completion_tokens":1}`), agentbus.Micros(len(ask("half absurd")) / 4), true},
		"half reported":    {price, true, usage(`{"prompt_tokens":5,"completion_tokens":1e400,"cost":0.5}`), 500_000, false},
		"half null":        {agentbus.Price{Input: 1_000_000}, false, usage(`{"prompt_tokens":5,"completion_tokens":null}`), 5, false},
		"absurd":           {agentbus.Price{Input: 1_000_000}, false, usage(`{"prompt_tokens":1e400,"completion_tokens":-5}`), agentbus.Micros(len(ask("absurd")) / 4), true},
		"no figure":        {agentbus.Price{Input: 1_000_000}, false, usage(`{"total":5}`), agentbus.Micros(len(ask("no figure")) / 4), true},
		"none":             {agentbus.Price{Output: 1_000_000}, false, `{"choices":[]}` + strings.Repeat(" ", 26), 10, true},
	}
	var agents []*agent
	for name, c := range rows {
		a := newAgent(t, name, answerWith(http.StatusOK, c.body))
		a.Price, a.UsageCost = c.price, c.reported
		agents = append(agents, a)
	}
	b := newBus(t, nil, agents...)
	var sum agentbus.Micros
	for name, c := range rows {
		id := strings.ReplaceAll(name, " ", "-")
		got := b.call(name, turn(id, "t")...)
		b.call(name, turn(id, "t")...)
		b.call(name, turn("all", id)...)
		r := b.one(id, agentbus.CallSettled)
		if r.Cost != c.cost || r.Usage.Estimated != c.estimated || got.header.Get("X-Agentbus-Cost-Usd") != c.cost.USD() {
			t.Errorf("%s: %d micros for %+v, told as %s; want %d", name, r.Cost, r.Usage, got.header.Get("X-Agentbus-Cost-Usd"), c.cost)
		}
		if n := r.Usage.InputTokens; name == "half reported" && n != 0 {
			t.Errorf("%s: %d tokens are believed", name, n)
		}
		if unreported := slices.Contains(r.Notes, "cost_unreported"); unreported != (name == "reported nothing" || name == "reported below 0") {
			t.Errorf("%s: the notes are %q", name, r.Notes)
		}
		sum += c.cost
	}
	if n := strings.Count(b.log.text(), "usage_cost did not say"); n != 2 { // one for each agent, not for each call
		t.Errorf("the log warns %d times", n)
	}
	runs, err := b.store.RunSummaries(t.Context(), agentbus.RunFilter{}, 100, "")
	if err != nil || len(runs) != len(rows)+1 {
		t.Fatal(runs, err)
	}
	for _, r := range runs {
		if r.Run == "all" && r.Cost != sum {
			t.Errorf("the sum of a run is %d, want %d", r.Cost, sum)
		}
	}
}

// TestA2ACostOfTheSameAnswer: G26, an A2A agent that tells no usage is charged the
// same for an answer that comes whole and for one that is streamed, in pieces, in either
// binding, whatever stands around it.
func TestA2ACostOfTheSameAnswer(t *testing.T) {
	t.Parallel()
	said := strings.Repeat("héllo ", 20)
	const history = `"history":[{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"a long question that nobody pays for twice"}]}]`
	whole := `{"task":{"id":"task-1","contextId":"c",` + history + `,"artifacts":[{"artifactId":"a","parts":[{"text":"` + said + said + `"},{"data":{"n":1}}]}],"status":{"state":"TASK_STATE_COMPLETED","message":{"parts":[{"text":"done"}]}}}}`
	events := []string{
		`{"task":{"id":"task-1","contextId":"c",` + history + `,"status":{"state":"TASK_STATE_SUBMITTED"}}}`,
		`{"statusUpdate":{"taskId":"task-1","contextId":"c","status":{"state":"TASK_STATE_WORKING","message":{"parts":[{"text":"thinking"}]}}}}`,
		`{"artifactUpdate":{"taskId":"task-1","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"void"}]}}}`,
		`{"artifactUpdate":{"taskId":"task-1","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"` + said + `"}]}}}`,
		`{"artifactUpdate":{"taskId":"task-1","contextId":"c","append":true,"artifact":{"artifactId":"a","parts":[{"text":"` + said + `"},{"data":{"n":1}}]}}}`,
		`{"statusUpdate":{"taskId":"task-1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","message":{"parts":[{"text":"done"}]}}}}`,
	}
	a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		before, after := "", ""
		if !strings.HasPrefix(r.URL.Path, "/http") {
			before, after = `{"jsonrpc":"2.0","id":"r1","result":`, `}`
		}
		if !strings.Contains(r.URL.Path, ":stream") && !strings.Contains(string(body), "SendStreamingMessage") {
			answerWith(http.StatusOK, before+whole+after)(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			_, _ = io.WriteString(w, "data: "+before+e+after+"\n\n")
		}
	})
	a.Price = agentbus.Price{Input: 4_000_000, Output: 4_000_000} // a micro a byte
	b := newBus(t, nil, a)
	want := agentbus.Usage{InputTokens: int64(len("hi") / 4), OutputTokens: int64((2*len(said) + len(`{"n":1}`) + len("done")) / 4), Estimated: true}
	for name, ask := range map[string]struct{ path, body string }{
		"rpc":         {"/a2a/critic", sendHi},
		"rpc-stream":  {"/a2a/critic", rpc("r1", "SendStreamingMessage", say("m1"))},
		"rest":        {"/a2a/critic/rest/message:send", say("m1")},
		"rest-stream": {"/a2a/critic/rest/message:stream", say("m1")},
	} {
		got := b.send(http.MethodPost, ask.path, ask.body, append(turn(name, name+".t0.x"), asAlice, "A2A-Version: 1.0", "Content-Type: application/json")...)
		r := b.one(name, agentbus.CallSettled)
		if got.status != http.StatusOK || r.Usage != want || r.Cost != agentbus.Micros(4*(want.InputTokens+want.OutputTokens)) {
			t.Errorf("%s: %d, %+v for %s, want %+v", name, got.status, r.Usage, r.Cost.USD(), want)
		}
	}
}
