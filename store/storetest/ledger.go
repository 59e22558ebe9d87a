package storetest

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

var ledger = map[string]func(*place){
	"ANewKeyExecutes":                         aNewKeyExecutes,
	"AnUnfinishedCallIsInFlight":              anUnfinishedCallIsInFlight,
	"ASettledCallIsAnsweredToTheByte":         aSettledCallIsAnsweredToTheByte,
	"ASettledCallNeverChanges":                aSettledCallNeverChanges,
	"AnotherRequestUnderAKeyIsAMismatch":      anotherRequestUnderAKeyIsAMismatch,
	"AVoidedKeyIsFreeAgain":                   aVoidedKeyIsFreeAgain,
	"ADeadProcessIsTakenOverAndFenced":        aDeadProcessIsTakenOverAndFenced,
	"AReplyThatIsNotKeptIsExpired":            aReplyThatIsNotKeptIsExpired,
	"MintedTurnsAreCountedInTheTransaction":   mintedTurnsAreCountedInTheTransaction,
	"OneOfManyConcurrentReservationsExecutes": oneOfManyConcurrentReservationsExecutes,
	"ChargesAddUpExactly":                     chargesAddUpExactly,
	"WhatWasAcknowledgedIsThereAfterReopen":   callsSurviveReopening,
	"BodiesOfAnySizeAndBytesAreKept":          bodiesOfAnySizeAndBytesAreKept,
}

// reservation returns a request for the n-th turn of run.
func reservation(run agentbus.RunID, n int) agentbus.Reservation {
	key := agentbus.TurnKey{
		Payer: "user:zoë", Agent: "critic", Run: run, Path: "0123456789abcdef",
		Parent: run.Turn(0, "root"), ID: run.Turn(n, "critic"),
	}
	return agentbus.Reservation{Key: key.Hash(), Call: agentbus.CallRecord{
		TurnKey: key, RequestID: "req-" + strconv.Itoa(n), Caller: "service:" + difficult, Speaker: "Zoë 🦊", Depth: 2, Chain: &agentbus.AgentChain{Hop: n%64 + 1, MaxHops: 64, Final: n%64 == 63},
		Digest: agentbus.Digest{1, 2, 3}, Stream: true, Notes: []string{difficult}, Owner: "host:1", Began: began,
	}}
}

// reserve reserves r, which must execute.
func reserve(t *testing.T, s Store, r agentbus.Reservation) agentbus.CallRecord {
	t.Helper()
	got, err := s.Reserve(t.Context(), r)
	ok(t, "reserve", err)
	if got.Outcome != agentbus.OutcomeExecute || got.Reply != nil {
		t.Fatalf("reserve: outcome %d with reply %v, want OutcomeExecute", got.Outcome, got.Reply)
	}
	return got.Call
}

// settlement ends the attempt of c with an answer.
func settlement(c agentbus.CallRecord, body string) agentbus.Settlement {
	return agentbus.Settlement{
		ID: c.ID, Attempt: c.Attempts,
		Reply: agentbus.StoredReply{Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain", difficult}}, Body: []byte(body)},
		Usage: agentbus.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 7, Cost: 12, Estimated: true},
		Cost:  4_000, Ended: began.Add(time.Second),
	}
}

func expectOutcome(t *testing.T, s Store, r agentbus.Reservation, want agentbus.Outcome) agentbus.Reserved {
	t.Helper()
	got, err := s.Reserve(t.Context(), r)
	ok(t, "reserve", err)
	if got.Outcome != want {
		t.Fatalf("reserve: outcome %d, want %d (%+v)", got.Outcome, want, got.Call)
	}
	return got
}

// oneCall returns the only call of run_a.
func oneCall(t *testing.T, s Store) agentbus.CallRecord {
	t.Helper()
	calls, err := s.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	if len(calls) != 1 {
		t.Fatalf("the run has %d calls, want 1: %+v", len(calls), calls)
	}
	return calls[0]
}

func aNewKeyExecutes(p *place) { // G20, G21
	t := p.t
	r := reservation("run_a", 0)
	got := reserve(t, p, r)
	want := r.Call
	want.ID, want.State, want.Attempts = got.ID, agentbus.CallExecuting, 1
	same(t, "reserved", got, want)
	same(t, "stored", oneCall(t, p), want)
}

func anUnfinishedCallIsInFlight(p *place) { // G22
	t := p.t
	r := reservation("run_a", 0)
	first := reserve(t, p, r)
	r.Call.Owner, r.Call.RequestID, r.TakeOver = "host:2", "req-again", "host:3"
	got := expectOutcome(t, p, r, agentbus.OutcomeInFlight)
	same(t, "the call in flight", got.Call, first)
	ok(t, "replayed", p.Replayed(t.Context(), first.ID))
	ok(t, "replayed", p.Replayed(t.Context(), first.ID))
	if got := oneCall(t, p); got.Replays != 2 || got.Attempts != 1 || got.Owner != "host:1" {
		t.Errorf("after two duplicates attached: %+v", got)
	}
}

func aSettledCallIsAnsweredToTheByte(p *place) { // G23, I7
	t := p.t
	r := reservation("run_a", 0)
	call := reserve(t, p, r)
	s := settlement(call, "caf\xe9 \x00 "+difficult)
	s.Notes = []string{"late"}
	ok(t, "settle", p.Settle(t.Context(), s))
	for range 3 {
		r.Call.RequestID, r.Call.Owner = "req-duplicate", "host:2"
		got := expectOutcome(t, p, r, agentbus.OutcomeSettled)
		same(t, "reply", got.Reply, &s.Reply)
		if got.Call.RequestID != "req-0" || got.Call.State != agentbus.CallSettled {
			t.Errorf("the record of a replay is not the first one: %+v", got.Call)
		}
	}
	want := call
	want.State, want.Status, want.Usage, want.Cost, want.Replays = agentbus.CallSettled, http.StatusOK, s.Usage, s.Cost, 3
	want.Notes, want.Ended = []string{difficult, "late"}, s.Ended
	same(t, "the record", oneCall(t, p), want)
}

func aSettledCallNeverChanges(p *place) { // G20, I1
	t := p.t
	call := reserve(t, p, reservation("run_a", 0))
	ok(t, "settle", p.Settle(t.Context(), settlement(call, "first")))
	before := oneCall(t, p)
	again := settlement(call, "second")
	again.Cost = 999
	refused(t, "settle twice", p.Settle(t.Context(), again), agentbus.CodeLeaseLost)
	refused(t, "void a settled call", p.Void(t.Context(), agentbus.Voiding{ID: call.ID, Attempt: 1, Unbilled: 5}), agentbus.CodeLeaseLost)
	refused(t, "append to a settled call", p.Append(t.Context(), call.ID, 1, []byte("more")), agentbus.CodeLeaseLost)
	r := reservation("run_a", 0)
	r.TakeOver = r.Call.Owner
	got := expectOutcome(t, p, r, agentbus.OutcomeSettled)
	same(t, "body", string(got.Reply.Body), "first")
	before.Replays = 1
	same(t, "the record", oneCall(t, p), before)
}

func anotherRequestUnderAKeyIsAMismatch(p *place) { // G20
	t := p.t
	r, other := reservation("run_a", 0), reservation("run_a", 0)
	other.Call.Digest = agentbus.Digest{9}
	call := reserve(t, p, r)
	expectOutcome(t, p, other, agentbus.OutcomeMismatch)
	other.TakeOver = r.Call.Owner
	expectOutcome(t, p, other, agentbus.OutcomeMismatch)
	ok(t, "settle", p.Settle(t.Context(), settlement(call, "x")))
	if got := expectOutcome(t, p, other, agentbus.OutcomeMismatch); got.Reply != nil {
		t.Errorf("a mismatch came with the other request's reply")
	}
	same(t, "digest", oneCall(t, p).Digest, r.Call.Digest)
}

func aVoidedKeyIsFreeAgain(p *place) { // G20
	t := p.t
	r := reservation("run_a", 0)
	call := reserve(t, p, r)
	void := agentbus.Voiding{
		ID: call.ID, Attempt: 1, Status: 502, Code: agentbus.CodeAgentUnavailable, Message: difficult,
		Usage: agentbus.Usage{InputTokens: 3}, Unbilled: 30, Ended: began.Add(time.Second),
	}
	ok(t, "void", p.Void(t.Context(), void))
	want := call
	want.State, want.Status, want.Code, want.Message = agentbus.CallVoided, 502, void.Code, void.Message
	want.Usage, want.Unbilled, want.Ended = void.Usage, 30, void.Ended
	same(t, "voided", oneCall(t, p), want)
	refused(t, "void twice", p.Void(t.Context(), void), agentbus.CodeLeaseLost)

	r.Call.Digest, r.Call.Owner, r.Call.RequestID, r.Call.Began = agentbus.Digest{7}, "host:2", "req-again", began.Add(time.Minute)
	second := reserve(t, p, r)
	if second.ID != call.ID || second.Attempts != 2 || second.Digest != r.Call.Digest || second.Owner != "host:2" || second.Unbilled != 30 {
		t.Errorf("the second attempt: %+v", second)
	}
	stored := oneCall(t, p)
	same(t, "stored", stored.State, agentbus.CallExecuting)
	same(t, "stored", stored.RequestID, "req-again")
	same(t, "stored began", stored.Began, r.Call.Began)
	void.Attempt = 2
	ok(t, "void again", p.Void(t.Context(), void))
	third := reserve(t, p, r)
	ok(t, "settle", p.Settle(t.Context(), settlement(third, "x")))
	if got := oneCall(t, p); got.Attempts != 3 || got.Unbilled != 60 || got.Cost != 4_000 || got.Code != "" {
		t.Errorf("after two failed attempts: %+v", got)
	}
}

func aDeadProcessIsTakenOverAndFenced(p *place) { // G24
	t := p.t
	r := reservation("run_a", 0)
	old := reserve(t, p, r)
	ok(t, "append", p.Append(t.Context(), old.ID, 1, []byte("from the dead")))
	r.TakeOver, r.Call.Owner = "host:1", "host:2"
	call := reserve(t, p, r)
	if call.ID != old.ID || call.Attempts != 2 || call.Owner != "host:2" {
		t.Fatalf("taken over: %+v", call)
	}
	refused(t, "append by the dead", p.Append(t.Context(), old.ID, 1, []byte("late")), agentbus.CodeLeaseLost)
	refused(t, "settle by the dead", p.Settle(t.Context(), settlement(old, "late")), agentbus.CodeLeaseLost)
	refused(t, "void by the dead", p.Void(t.Context(), agentbus.Voiding{ID: old.ID, Attempt: 1}), agentbus.CodeLeaseLost)
	expectOutcome(t, p, r, agentbus.OutcomeInFlight) // host:1 is no longer the owner
	s := settlement(call, "alive")
	s.Appended = true
	ok(t, "settle", p.Settle(t.Context(), s))
	same(t, "body", string(expectOutcome(t, p, r, agentbus.OutcomeSettled).Reply.Body), "alive")
}

func aReplyThatIsNotKeptIsExpired(p *place) { // G25
	t := p.t
	r := reservation("run_a", 0)
	call := reserve(t, p, r)
	s := settlement(call, "too large")
	s.Drop = true
	ok(t, "settle", p.Settle(t.Context(), s))
	if got := expectOutcome(t, p, r, agentbus.OutcomeExpired); got.Reply != nil || got.Call.Cost != 4_000 {
		t.Errorf("expired: %+v", got)
	}
	r.Call.Digest = agentbus.Digest{9}
	expectOutcome(t, p, r, agentbus.OutcomeMismatch)
}

func mintedTurnsAreCountedInTheTransaction(p *place) { // P7
	t := p.t
	mint := func(key string, payer agentbus.Payer, parent agentbus.TurnID) agentbus.Reservation {
		r := reservation("run_a", 0)
		r.Call.TurnKey.ID, r.Call.Payer, r.Call.Parent, r.MintTurn = "", payer, parent, "Zoë the Critic"
		r.Key = r.Call.Hash(key)
		return r
	}
	const n = 20
	var seen [n]atomic.Int32
	together(n, func(i int) {
		got, err := p.Reserve(t.Context(), mint(strconv.Itoa(i), "alice", "run_a.t0.root"))
		if err != nil {
			t.Errorf("reserve: %v", err)
			return
		}
		if x := got.Call.TurnKey.ID.Index("run_a"); x >= 0 && x < n {
			seen[x].Add(1)
		}
	})
	for i := range seen {
		if seen[i].Load() != 1 {
			t.Errorf("index %d was minted %d times", i, seen[i].Load())
		}
	}
	call := reserve(t, p, mint("x", "bob", "run_a.t0.root"))
	same(t, "another payer starts at 0", call.TurnKey.ID, "run_a.t0.zoe-the-critic")
	same(t, "another parent starts at 0", reserve(t, p, mint("x", "alice", "")).TurnKey.ID, "run_a.t0.zoe-the-critic")
	// A run id may leave no room for its turns (P4).
	long := agentbus.RunID(strings.Repeat("r", 512))
	minted := map[agentbus.TurnID]bool{}
	for i := range 3 {
		r := mint("long"+strconv.Itoa(i), "alice", "")
		r.Call.Run = long
		id := reserve(t, p, r).TurnKey.ID
		if minted[id] = true; !agentbus.RunID(id).Valid() || !strings.HasSuffix(string(id), ".t0.zoe-the-critic") {
			t.Errorf("the turn %q", id)
		}
	}
	same(t, "different turns of a run with a long id", len(minted), 3)
	// A duplicate by Idempotency-Key gets the ids first minted.
	again := mint("x", "bob", "run_a.t0.root")
	again.Call.Run = "run_b"
	got := expectOutcome(t, p, again, agentbus.OutcomeInFlight)
	same(t, "ids of the first", got.Call.TurnKey, call.TurnKey)
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: call.ID, Attempt: 1}))
	same(t, "ids after a void", reserve(t, p, again).TurnKey, call.TurnKey)
}

func oneOfManyConcurrentReservationsExecutes(p *place) { // G20, I1
	t := p.t
	var executing atomic.Int32
	together(64, func(i int) {
		r := reservation("run_a", 0)
		r.Call.Owner = strconv.Itoa(i)
		got, err := p.Reserve(t.Context(), r)
		switch {
		case err != nil:
			t.Errorf("reserve: %v", err)
		case got.Outcome == agentbus.OutcomeExecute:
			executing.Add(1)
		case got.Outcome != agentbus.OutcomeInFlight:
			t.Errorf("outcome %d", got.Outcome)
		}
	})
	if n := executing.Load(); n != 1 {
		t.Errorf("%d of 64 reservations execute", n)
	}
	oneCall(t, p)
}

func chargesAddUpExactly(p *place) { // G26, I1
	t := p.t
	const turns = 25
	var charged atomic.Int64
	together(8, func(caller int) {
		for n := range turns { // all callers want all turns; every attempt but one in three fails
			got, err := p.Reserve(t.Context(), reservation("run_a", n))
			if err != nil {
				t.Errorf("reserve: %v", err)
				return
			}
			if got.Outcome != agentbus.OutcomeExecute {
				continue
			}
			if (n+caller)%3 != 0 {
				err = p.Void(t.Context(), agentbus.Voiding{ID: got.Call.ID, Attempt: got.Call.Attempts, Unbilled: 1})
			} else {
				s := settlement(got.Call, "x")
				s.Cost = agentbus.Micros(1 + n*7 + caller)
				charged.Add(int64(s.Cost))
				err = p.Settle(t.Context(), s)
			}
			if err != nil {
				t.Errorf("end of an attempt: %v", err)
			}
		}
	})
	calls, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	var sum, unbilled agentbus.Micros
	failed := 0
	for _, c := range calls {
		sum += c.Cost
		unbilled += c.Unbilled
		failed += c.Attempts
		if c.State == agentbus.CallSettled {
			failed--
		} else if c.Cost != 0 {
			t.Errorf("a call in state %s is charged: %+v", c.State, c)
		}
	}
	sums, err := p.RunSummaries(t.Context(), agentbus.RunFilter{}, 1, "")
	ok(t, "summaries", err)
	if got := int64(sum); len(calls) != turns || got != charged.Load() || sums[0].Cost != sum || int(unbilled) != failed {
		t.Errorf("%d calls cost %d, the settlements %d, the summary %d; unbilled %d of %d failed attempts",
			len(calls), sum, charged.Load(), sums[0].Cost, unbilled, failed)
	}
}

func callsSurviveReopening(p *place) { // I2
	t := p.t
	var calls []agentbus.CallRecord
	for n := range 3 {
		calls = append(calls, reserve(t, p, reservation("run_a", n)))
	}
	ok(t, "settle", p.Settle(t.Context(), settlement(calls[0], "kept")))
	ok(t, "void", p.Void(t.Context(), agentbus.Voiding{ID: calls[1].ID, Attempt: 1, Ended: began}))
	before, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	key := bytes.Clone(p.InstallKey())
	p.reopen()
	after, err := p.Calls(t.Context(), "run_a")
	ok(t, "calls", err)
	same(t, "calls", after, before)
	same(t, "body", string(expectOutcome(t, p, reservation("run_a", 0), agentbus.OutcomeSettled).Reply.Body), "kept")
	expectOutcome(t, p, reservation("run_a", 2), agentbus.OutcomeInFlight)
	if !bytes.Equal(key, p.InstallKey()) || len(key) != 32 { // P19
		t.Errorf("the install key was %x and is %x", key, p.InstallKey())
	}
	ok(t, "check", p.Check(t.Context()))
}

// noise returns n bytes that cannot be packed, the same ones each time.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return string(b)
}

func bodiesOfAnySizeAndBytesAreKept(p *place) { // G23, G25
	t := p.t
	for n, body := range []string{"", "\x00", strings.Repeat("é\xff\x00", 1<<19), strings.Repeat("large", 1<<20), noise(3 << 10), noise(1 << 20), strings.Repeat("data: {\"n\":1}\n\n", 600)} {
		r := reservation("run_a", n)
		s := settlement(reserve(t, p, r), body)
		if n == 0 {
			s.Reply.Header = nil
		}
		ok(t, "settle", p.Settle(t.Context(), s))
		got := expectOutcome(t, p, r, agentbus.OutcomeSettled)
		same(t, "header", got.Reply.Header, s.Reply.Header)
		if string(got.Reply.Body) != body {
			t.Errorf("a body of %d bytes came back as %d other bytes", len(body), len(got.Reply.Body))
		}
	}
}
