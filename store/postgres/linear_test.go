package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/postgres"
)

// The operations of a history: of the ledger on a call, and of the journal on
// a turn.
const (
	opReserve = iota // Begin of a call: execute it, or attach
	opSettle         // Finish of a call
	opVoid
	opAttach // to what became of a call
	opClaim
	opBegin
	opFinish
	opRead
)

// An ask is what an operation was asked, and of what; a told what it answered.
type (
	ask struct {
		of      int // call or turn
		op      int
		owner   string // who asks, and
		dead    string // whose attempt may be taken over
		attempt uint64 // or epoch
		reply   string
	}
	told struct {
		is      string // an outcome, a state or a code
		attempt uint64 // or epoch
		owner   string
		reply   string
	}
)

// A cell is a call or a turn between two operations: the attempt that executes
// it, or the epoch of the lease of its execution.
type cell struct {
	is      string
	attempt uint64
	owner   string
	reply   string
	begun   uint64 // epoch under which the turn is pending
}

const lost = string(agentbus.CodeLeaseLost)

// stepCall is what the ledger promises of a call (G20 to G24).
func stepCall(c cell, a ask) (told, cell) {
	switch a.op {
	case opReserve:
		switch {
		case c.is == "settled":
			return told{is: "settled", attempt: c.attempt, reply: c.reply}, c
		case c.is == "executing" && a.dead != c.owner:
			return told{is: "in flight", attempt: c.attempt, owner: c.owner}, c
		}
		c = cell{is: "executing", attempt: c.attempt + 1, owner: a.owner}
		return told{is: "execute", attempt: c.attempt}, c
	case opSettle, opVoid:
		if c.is != "executing" || c.attempt != a.attempt {
			return told{is: lost}, c
		}
		if c.is, c.owner = "voided", ""; a.op == opSettle {
			c.is, c.reply = "settled", a.reply
		}
		return told{}, c
	}
	switch c.is {
	case "settled":
		return told{is: "settled", attempt: c.attempt, reply: c.reply}, c
	case "executing":
		return told{is: "in flight", attempt: c.attempt, owner: c.owner}, c
	}
	return told{is: "none"}, c
}

// stepTurn is what the journal promises of a turn (R14, R17).
func stepTurn(c cell, a ask) (told, cell) {
	switch {
	case a.op == opClaim:
		c.attempt++
		return told{attempt: c.attempt}, c
	case a.op == opRead:
		return told{is: c.is, reply: c.reply}, c
	case a.attempt != c.attempt, a.op == opFinish && (c.is != "pending" || c.begun != a.attempt):
		return told{is: lost}, c
	case a.op == opFinish:
		c.is, c.reply = "done", a.reply
		return told{}, c
	case c.is == "done":
		return told{is: "done", reply: c.reply}, c
	}
	c.is, c.begun = "pending", a.attempt
	return told{is: "pending"}, c
}

// modelOf is a model of many cells, each by itself.
func modelOf(step func(cell, ask) (told, cell)) porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byCell := map[int][]porcupine.Operation{}
			for _, o := range history {
				of := o.Input.(ask).of //nolint:errcheck,forcetypeassert // the history is ours
				byCell[of] = append(byCell[of], o)
			}
			var all [][]porcupine.Operation
			for _, h := range byCell {
				all = append(all, h)
			}
			return all
		},
		Init: func() any { return cell{} },
		Step: func(state, input, output any) (bool, any) {
			want, next := step(state.(cell), input.(ask)) //nolint:errcheck,forcetypeassert // the history is ours
			return output == any(want), next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
}

// A recorder lets clients use stores at once and records what they ask and hear.
type recorder struct {
	t      *testing.T
	stores []*postgres.Store
	began  time.Time
	mu     sync.Mutex
	all    []porcupine.Operation
}

const (
	linearClients = 6
	linearCells   = 8
	linearOps     = 60 // of each client
)

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	url, r := stores.Database(t), &recorder{t: t, began: time.Now()}
	for range 3 {
		s := opened(t, url)
		t.Cleanup(func() { _ = s.Close() })
		r.stores = append(r.stores, s)
	}
	return r
}

// run has clients choose operations and do them.
func (r *recorder) run(choose func(client int, random *rand.Rand) ask, do func(*postgres.Store, ask) told) []porcupine.Operation {
	var wg sync.WaitGroup
	for client := range linearClients {
		random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(client)))
		wg.Go(func() {
			for range linearOps {
				a := choose(client, random)
				call := time.Since(r.began)
				got := do(r.stores[client%len(r.stores)], a)
				o := porcupine.Operation{ClientId: client, Input: a, Call: int64(call), Output: got, Return: int64(time.Since(r.began))}
				r.mu.Lock()
				r.all = append(r.all, o)
				r.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return r.all
}

// check fails unless the history could have been one operation after the other.
func (r *recorder) check(m porcupine.Model) {
	r.t.Helper()
	result, info := porcupine.CheckOperationsVerbose(m, r.all, time.Minute)
	if result == porcupine.Ok {
		return
	}
	for _, o := range r.all {
		r.t.Log(m.DescribeOperation(o.Input, o.Output), o.ClientId, o.Call, o.Return)
	}
	r.t.Errorf("the history of %d operations is %s: %+v", len(r.all), result, info)
}

// TestCallsAreLinearizable: what three replicas answer that reserve, settle,
// void and look up the same calls at once is what one would have answered that
// does them one after the other, in an order in which nothing that was answered
// comes behind what was asked later (G20 to G24, I1).
func TestCallsAreLinearizable(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	var mu sync.Mutex
	ids := map[int]int64{}
	choose := func(client int, random *rand.Rand) ask {
		a := ask{of: random.IntN(linearCells), op: []int{opReserve, opReserve, opReserve, opSettle, opVoid, opVoid, opAttach}[random.IntN(7)], owner: "owner-" + strconv.Itoa(client)}
		switch a.op {
		case opReserve:
			if random.IntN(2) == 0 {
				a.dead = "owner-" + strconv.Itoa(random.IntN(linearClients))
			}
		case opSettle, opVoid:
			a.attempt = 1 + uint64(random.IntN(4))
			a.reply = fmt.Sprintf("reply %d of %s", random.IntN(1000), a.owner)
		}
		if a.op != opSettle {
			a.reply = ""
		}
		return a
	}
	r.run(choose, func(s *postgres.Store, a ask) told {
		q := request("payer", agentbus.RunID("run_"+strconv.Itoa(a.of)), 0)
		q.Call.Owner, q.TakeOver = a.owner, a.dead
		mu.Lock()
		id := ids[a.of]
		mu.Unlock()
		got, err := callOp(t.Context(), s, a, q, id)
		if err != nil && agentbus.CodeOf(err) != agentbus.CodeLeaseLost {
			t.Error(err)
		}
		if got.Call.ID != 0 {
			mu.Lock()
			ids[a.of] = got.Call.ID
			mu.Unlock()
		}
		return toldOf(got, a, err)
	})
	r.check(modelOf(stepCall))
	if v, err := r.stores[0].VerifyLedger(t.Context()); err != nil || v.Fault != "" {
		t.Errorf("the ledger: %+v, %v", v, err)
	}
}

// callOp does an operation of the ledger.
func callOp(ctx context.Context, s *postgres.Store, a ask, q agentbus.Reservation, id int64) (got agentbus.Reserved, err error) {
	switch a.op {
	case opReserve:
		return s.Reserve(ctx, q)
	case opSettle:
		return got, s.Settle(ctx, agentbus.Settlement{ID: id, Attempt: int(a.attempt), Cost: 10, Ended: time.Now(), Reply: agentbus.StoredReply{Status: 200, Body: []byte(a.reply)}})
	case opVoid:
		return got, s.Void(ctx, agentbus.Voiding{ID: id, Attempt: int(a.attempt), Ended: time.Now()})
	}
	got, _, err = s.Lookup(ctx, q.Key, q.Call.Digest)
	return got, err
}

// toldOf is what an operation of the ledger answered.
func toldOf(got agentbus.Reserved, a ask, err error) (o told) {
	switch {
	case err != nil:
		return told{is: string(agentbus.CodeOf(err))}
	case a.op == opSettle, a.op == opVoid:
		return told{}
	}
	o.attempt = uint64(got.Call.Attempts)
	switch got.Outcome {
	case agentbus.OutcomeExecute:
		o.is = "execute"
	case agentbus.OutcomeSettled:
		o.is, o.reply = "settled", string(got.Reply.Body)
	case agentbus.OutcomeInFlight:
		o.is, o.owner = "in flight", got.Call.Owner
	default:
		o.is, o.attempt = "none", 0
	}
	return o
}

// TestTurnsAreLinearizable: likewise of drivers on three replicas that claim the
// same executions from each other, and begin, finish and read their turns (R14,
// R17, I2).
func TestTurnsAreLinearizable(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	for i := range linearCells {
		claimed(t, r.stores[0], i, "nobody") // epoch 1
	}
	var mu sync.Mutex
	newest := map[int]uint64{}
	choose := func(client int, random *rand.Rand) ask {
		a := ask{of: random.IntN(linearCells), op: []int{opClaim, opBegin, opBegin, opFinish, opFinish, opRead}[random.IntN(6)], owner: "owner-" + strconv.Itoa(client)}
		if a.op == opBegin || a.op == opFinish {
			mu.Lock()
			a.attempt = max(newest[a.of], 1+uint64(random.IntN(2))) - uint64(random.IntN(2)) // of the lease that holds, or held
			mu.Unlock()
		}
		if a.op == opFinish {
			a.reply = fmt.Sprintf("reply %d of %s", random.IntN(1000), a.owner)
		}
		return a
	}
	r.all = nil
	r.run(choose, func(s *postgres.Store, a ask) told {
		got, err := turnOp(t, s, a)
		if code := agentbus.CodeOf(err); err != nil && code != agentbus.CodeLeaseLost {
			t.Error(err)
		}
		if err != nil {
			return told{is: string(agentbus.CodeOf(err))}
		}
		if a.op == opClaim {
			mu.Lock()
			newest[a.of] = max(newest[a.of], got.attempt)
			mu.Unlock()
		}
		return got
	})
	m := modelOf(stepTurn)
	m.Init = func() any { return cell{attempt: 1} }
	r.check(m)
}

// claimed claims the i-th execution for an owner, under a lease that others may
// take at once.
func claimed(t *testing.T, s *postgres.Store, i int, owner string) agentbus.Execution {
	t.Helper()
	id := agentbus.ExecutionID("run_" + strconv.Itoa(i))
	e, err := s.Open(t.Context(), agentbus.Execution{ID: id, Run: agentbus.RunID(id), Conversation: "talk", Payer: "payer", Began: time.Now()},
		agentbus.Claim{Owner: owner, TTL: -time.Second})
	if err != nil {
		t.Error(err)
	}
	return e
}

// turnOp does an operation of the journal.
func turnOp(t *testing.T, s *postgres.Store, a ask) (told, error) {
	t.Helper()
	run := agentbus.RunID("run_" + strconv.Itoa(a.of))
	turn := agentbus.Turn{
		TurnKey: agentbus.TurnKey{Payer: "payer", Agent: "critic", Run: run, ID: run.Turn(0, "critic")}, Execution: agentbus.ExecutionID(run),
		Speaker: "critic", Epoch: a.attempt, Began: time.Now(),
	}
	switch a.op {
	case opClaim:
		return told{attempt: claimed(t, s, a.of, a.owner).Lease.Epoch}, nil
	case opBegin:
		got, err := s.Begin(t.Context(), []agentbus.Turn{turn})
		if err != nil {
			return told{}, err
		}
		return toldTurn(got[0]), nil
	case opFinish:
		turn.State, turn.Reply, turn.Ended = agentbus.TurnDone, agentbus.Reply{Text: a.reply}, time.Now()
		return told{}, s.Finish(t.Context(), turn, nil)
	}
	for got, err := range s.Turns(t.Context(), turn.Execution) {
		return toldTurn(got), err
	}
	return told{}, nil
}

func toldTurn(got agentbus.Turn) told { return told{is: string(got.State), reply: got.Reply.Text} }
