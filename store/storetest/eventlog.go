package storetest

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
)

var eventLog = map[string]func(*place){
	"AppendedEventsComeInOrderBetweenTurns": appendedEventsComeInOrder,
	"ACauseInTheSameAppendIsResolved":       aCauseInTheSameAppendIsResolved,
	"ALostLeaseAppendsNothing":              aLostLeaseAppendsNothing,
	"EventsAreReadFromAnyPosition":          eventsAreReadFromAnyPosition,
	"DataStaysByteByByte":                   dataStaysByteByByte,
	"WhoWatchesHearsOfEveryAppend":          whoWatchesHearsOfEveryAppend,
	"ARunKeyBelongsToOneRun":                aRunKeyBelongsToOneRun,
	"RunsAreListedByPayerAndWorkflow":       runsAreListedByPayerAndWorkflow,
}

func (p *place) append(l agentbus.Lease, events ...agentbus.Event) agentbus.Position {
	p.t.Helper()
	n, err := p.AppendEvents(p.t.Context(), l, events...)
	ok(p.t, "append", err)
	return n
}

func appendedEventsComeInOrder(p *place) { // E9
	t := p.t
	e := opened(t, p, "run_a")
	first := begin(t, p, turn(e, 0))
	one, two, three := happened(e, "one"), happened(e, "two"), happened(e, "three")
	one.Node = "writer"
	if n := p.append(e.Lease, one, two); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
	ok(t, "finish", p.Finish(t.Context(), done(first, "x"), nil, three))
	if n := p.append(e.Lease); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
	want := []agentbus.Event{placed(e, 0, one), placed(e, 1, two), placed(e, 2, three)}
	same(t, "events", collect(t, p.Events(t.Context(), e.ID, -1)), want)
	p.reopen()
	same(t, "events after a restart", collect(t, p.Events(t.Context(), e.ID, -1)), want)
	n, err := p.Appended(t.Context(), e.ID)
	ok(t, "count", err)
	same(t, "count", n, 3)
}

func aCauseInTheSameAppendIsResolved(p *place) { // E24
	t := p.t
	e := opened(t, p, "run_a")
	p.append(e.Lease, happened(e, "before"))
	called, returned := happened(e, agentbus.EventAgentToolCalled), happened(e, agentbus.EventAgentToolReturned)
	returned.Cause, returned.CauseBack = "", 1
	heldCall, heldReturn := called, returned
	heldCall.Hold, heldReturn.Hold = 2, 2
	p.append(e.Lease, heldCall, heldReturn)
	p.append(e.Lease, called, returned)
	for _, place := range []int{2, 4} {
		got := collect(t, p.Events(t.Context(), e.ID, agentbus.Position(place-1)))[0]
		if got.Type != agentbus.EventAgentToolReturned || got.Cause != agentbus.EventIDOf(e.ID, agentbus.Position(place-1)) {
			t.Errorf("event %d: %s caused by %s", place, got.Type, got.Cause)
		}
	}
}

func aLostLeaseAppendsNothing(p *place) { // R17, E10
	t := p.t
	e := opened(t, p, "run_a")
	stale := e.Lease
	e, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{Owner: "host:2", TTL: time.Hour, TakeOver: stale.Epoch})
	ok(t, "take over", err)
	_, err = p.AppendEvents(t.Context(), stale, happened(e, "late"))
	refused(t, "append under an old lease", err, agentbus.CodeLeaseLost)
	ok(t, "halt", p.Halt(t.Context(), e.Lease, agentbus.Halt{Kind: agentbus.HaltDone}, happened(e, "last")))
	_, err = p.AppendEvents(t.Context(), e.Lease, happened(e, "behind the last"))
	refused(t, "append to what is over", err, agentbus.CodeLeaseLost)
	same(t, "events", len(collect(t, p.Events(t.Context(), e.ID, -1))), 1)
}

func eventsAreReadFromAnyPosition(p *place) {
	t := p.t
	e := opened(t, p, "run_a")
	const rows, each = 40, 37
	for i := range rows {
		var events []agentbus.Event
		for j := range each {
			events = append(events, happened(e, "kind."+strconv.Itoa(i*each+j)))
		}
		p.append(e.Lease, events...)
	}
	big := make([]agentbus.Event, 3000)
	for i := range big {
		big[i] = happened(e, "kind."+strconv.Itoa(rows*each+i))
	}
	p.append(e.Lease, big...)
	total := rows*each + len(big)
	for _, after := range []int{-1, 0, 1, each - 2, each - 1, each, 511, total - 514, total - 2, total - 1, total, total + 5} {
		next := after + 1
		for got, err := range p.Events(t.Context(), e.ID, agentbus.Position(after)) {
			ok(t, "read", err)
			if int(got.Position) != next || got.Type != "kind."+strconv.Itoa(next) {
				t.Fatalf("after %d: position %d is %s, want %d", after, got.Position, got.Type, next)
			}
			next++
		}
		if want := max(total, after+1); next != want {
			t.Errorf("after %d: read up to %d, want %d", after, next, want)
		}
	}
}

func dataStaysByteByByte(p *place) { // E51
	t := p.t
	e := opened(t, p, "run_a")
	for _, data := range []string{`{"b": 1.0, "a":"<\u00e9&>", "n" : 12345678901234567890 }`, `null`, `[]`, "\" \\u2028\u2028\"", ``} {
		at := happened(e, "kind")
		at.Data = []byte(data)
		n := p.append(e.Lease, at)
		got := collect(t, p.Events(t.Context(), e.ID, n-2))[0]
		if string(got.Data) != data && data != "null" {
			t.Errorf("%q reads as %q", data, got.Data)
		}
	}
	bad := happened(e, "kind")
	bad.Data = []byte(`{"a":`)
	if _, err := p.AppendEvents(t.Context(), e.Lease, bad); err == nil {
		t.Error("what is no JSON was stored")
	}
}

func whoWatchesHearsOfEveryAppend(p *place) {
	t := p.t
	e := opened(t, p, "run_a")
	const n = 50
	var going sync.WaitGroup
	for range 8 {
		going.Go(func() {
			for next := agentbus.Position(0); next < n; {
				rung, release := p.Watch(e.ID)
				got, err := p.Appended(t.Context(), e.ID)
				if err != nil {
					t.Error(err)
					release()
					return
				}
				if got > next {
					next = got
					release()
					continue
				}
				<-rung
				release()
			}
		})
	}
	for range n {
		p.append(e.Lease, happened(e, "kind"))
	}
	going.Wait()
}

func aRunKeyBelongsToOneRun(p *place) { // E6
	t := p.t
	key := func(run agentbus.ExecutionID) agentbus.RunKey {
		return agentbus.RunKey{Payer: "user:zoë", Key: "k", Digest: agentbus.Digest{7}, Run: run, Expires: began.Add(time.Hour)}
	}
	var claims atomic.Int32
	runs := make([]agentbus.ExecutionID, 8)
	var going sync.WaitGroup
	for i := range runs {
		going.Go(func() {
			got, mine, err := p.ClaimRunKey(t.Context(), key(agentbus.ExecutionID("run_"+strconv.Itoa(i))), began)
			if err != nil {
				t.Error(err)
			}
			if runs[i] = got.Run; mine {
				claims.Add(1)
			}
		})
	}
	going.Wait()
	same(t, "claims", claims.Load(), 1)
	for _, run := range runs {
		same(t, "the run of the key", run, runs[0])
	}
	p.reopen()
	got, mine, err := p.ClaimRunKey(t.Context(), key("run_x"), began.Add(59*time.Minute))
	ok(t, "claim", err)
	same(t, "known key", got, key(runs[0]))
	same(t, "claimed again", mine, false)
	other := key("run_y")
	other.Payer = "user:max"
	_, mine, err = p.ClaimRunKey(t.Context(), other, began)
	ok(t, "claim of another", err)
	same(t, "another payer's key is another", mine, true)
	not := other
	not.Run = "run_not"
	ok(t, "free of a run that has it not", p.FreeRunKey(t.Context(), not))
	_, mine, err = p.ClaimRunKey(t.Context(), not, began)
	ok(t, "claim", err)
	same(t, "claimed what another run has", mine, false)
	opened(t, p, "run_y")
	ok(t, "free of a run that its twin began", p.FreeRunKey(t.Context(), other))
	_, mine, err = p.ClaimRunKey(t.Context(), not, began)
	ok(t, "claim", err)
	same(t, "claimed what a run has", mine, false)
	other.Run = "run_v"
	_, _, err = p.ClaimRunKey(t.Context(), other, began.Add(2*time.Hour)) // when the other has expired
	ok(t, "claim", err)
	ok(t, "free", p.FreeRunKey(t.Context(), other))
	_, mine, err = p.ClaimRunKey(t.Context(), not, began)
	ok(t, "claim what was let go", err)
	same(t, "a key that was let go is free", mine, true)
	_, mine, err = p.ClaimRunKey(t.Context(), key("run_z"), began.Add(time.Hour))
	ok(t, "claim what expired", err)
	same(t, "an expired key is free", mine, true)
}

func runsAreListedByPayerAndWorkflow(p *place) {
	t := p.t
	var want []agentbus.ExecutionID
	for i := range 5 {
		e := execution(agentbus.ExecutionID("run_" + strconv.Itoa(i)))
		e.Began = began.Add(time.Duration(i/2) * time.Second)
		if i == 3 {
			e.Conversation = "other"
		}
		if i == 2 {
			e.Payer = "user:max"
		}
		_, err := p.Open(t.Context(), e, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
		ok(t, "open", err)
		want = append(want, e.ID)
	}
	nested := execution("run_nested")
	nested.Run = "run_0"
	_, err := p.Open(t.Context(), nested, agentbus.Claim{Owner: "host:1", TTL: time.Hour})
	ok(t, "open", err)
	ids := func(q agentbus.RunQuery) (ids []agentbus.ExecutionID) {
		list, err := p.PayersRuns(t.Context(), q)
		ok(t, "list", err)
		for i := range list {
			ids = append(ids, list[i].ID)
		}
		return ids
	}
	q := agentbus.RunQuery{Payer: "user:zoë", Limit: 2}
	same(t, "first page", ids(q), []agentbus.ExecutionID{want[4], want[3]})
	q.Before = want[3]
	same(t, "second page", ids(q), []agentbus.ExecutionID{want[1], want[0]})
	same(t, "of a workflow", ids(agentbus.RunQuery{Payer: "user:zoë", Workflow: "other", Limit: 9}), []agentbus.ExecutionID{want[3]})
	same(t, "of nobody", ids(agentbus.RunQuery{Payer: "user:eve", Limit: 9}), nil)
}
