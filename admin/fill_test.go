package admin_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

func (b *bus) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// reserve begins the n-th call of a run.
func (b *bus) reserve(payer agentbus.Payer, run agentbus.RunID, n int, hold agentbus.Hold) agentbus.CallRecord {
	b.t.Helper()
	key := agentbus.TurnKey{Payer: payer, Agent: "critic", Run: run, Parent: run.Turn(0, "root"), ID: run.Turn(n, "critic")}
	got, err := b.store.Reserve(b.t.Context(), agentbus.Reservation{Key: key.Hash(), Hold: hold, Call: agentbus.CallRecord{
		TurnKey: key, RequestID: "req_" + strconv.Itoa(n), Caller: "sandbox", Speaker: "critic", Depth: n, Notes: []string{"noted"}, Owner: "host/1/2",
		Began: began.Add(time.Duration(n) * time.Second),
	}})
	b.must(err)
	if got.Outcome != agentbus.OutcomeExecute {
		b.t.Fatalf("reserve: outcome %d", got.Outcome)
	}
	return got.Call
}

func (b *bus) settle(c agentbus.CallRecord, cost agentbus.Micros, hold agentbus.Hold) {
	b.t.Helper()
	b.must(b.store.Settle(b.t.Context(), agentbus.Settlement{
		ID: c.ID, Attempt: c.Attempts, Reply: agentbus.StoredReply{Status: http.StatusOK, Header: http.Header{}, Body: []byte("x")},
		Usage: agentbus.Usage{InputTokens: 10, CachedTokens: 2, OutputTokens: 5, Cost: 7, Estimated: true}, Cost: cost, Hold: hold, Ended: c.Began.Add(time.Second),
	}))
}

// fill stores of everything something. run_a is a conversation that halted at
// its budget; alice has three charges, bob a void, and one call goes on.
func (b *bus) fill() {
	b.t.Helper()
	ctx := b.t.Context()
	e, err := b.store.Open(ctx, agentbus.Execution{
		ID: "run_a", Run: "run_a", Conversation: "review", Seed: "say \"cost_micros\":1", Payer: "alice", Spec: json.RawMessage(`{"plan":"alternate"}`), Began: began,
	}, agentbus.Claim{Owner: "host/1/2", TTL: time.Hour})
	b.must(err)
	for i := range 3 {
		key := agentbus.TurnKey{Payer: "alice", Agent: "critic", Run: "run_a", ID: e.Run.Turn(i, "critic")}
		begun, err := b.store.Begin(ctx, []agentbus.Turn{{TurnKey: key, Execution: e.ID, Index: i, Speaker: "critic", Epoch: e.Lease.Epoch, State: agentbus.TurnPending, Attempts: 1, Began: began}})
		b.must(err)
		turn := begun[0]
		turn.State, turn.Cost, turn.Ended = agentbus.TurnDone, 5, began.Add(time.Second)
		turn.Reply = agentbus.Reply{Text: "yes", ToolCalls: []agentbus.ToolCall{{ID: "1", Name: "f", Arguments: "{}"}}, Model: "m", Finish: "stop"}
		if i == 2 {
			turn.State, turn.Reply = agentbus.TurnFailed, agentbus.Reply{}
			turn.Error = &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "gone", Status: 500, Explain: &agentbus.Explain{Rule: "G13", Observed: 5, Limit: "5s", Next: "wait"}}
		}
		b.must(b.store.Finish(ctx, turn, nil, agentbus.Event{Type: agentbus.EventNodeCompleted, Execution: e.ID, Run: e.Run, Turn: key.ID, At: began, Data: json.RawMessage(`{"cost_micros":5}`)}))
	}
	b.must(b.store.Halt(ctx, e.Lease, agentbus.Halt{Kind: agentbus.HaltBudget, Turns: 3, Spent: 15, Limit: 12}))
	hold := agentbus.Hold{Amount: 2_000_000, Budgets: budgets[:1]}
	for i := range 3 {
		b.settle(b.reserve("alice", "run_a", i, hold), 1_000_000, hold)
	}
	c := b.reserve("bob", "run_b", 3, agentbus.Hold{})
	b.must(b.store.Void(ctx, agentbus.Voiding{ID: c.ID, Attempt: 1, Status: 502, Code: agentbus.CodeAgentUnavailable, Message: "gone", Unbilled: 3, Ended: began.Add(time.Minute)}))
	live := b.reserve("alice", "run_c", 4, hold)
	live.Began = live.Began.In(time.FixedZone("", 3600))
	b.must(b.store.Record(ctx, agentbus.Digest{9}, agentbus.CallRecord{
		TurnKey: agentbus.TurnKey{Payer: "alice", Agent: "critic", Run: "run_a", ID: "run_a.t9.critic"}, State: agentbus.CallRefused, RequestID: "req_9", Caller: "sandbox",
		Status: 429, Code: agentbus.CodeDepthExceeded, Message: "too deep", Began: began, Ended: began,
	}))
	b.calls.goes(live)
	b.must(b.store.CreateKey(ctx, agentbus.APIKey{
		Handle: "ab_aaaaaa", Hash: agentbus.Digest{1}, Principal: agentbus.Principal{ID: "alice", Role: agentbus.PrincipalUser}, Created: began,
	}))
}
