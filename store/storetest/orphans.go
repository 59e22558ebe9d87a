package storetest

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

var orphans = map[string]func(*place){
	"ARunWithoutADriverIsFound":             aRunWithoutADriverIsFound,
	"ARunThatIsDrivenIsNoOrphan":            aRunThatIsDrivenIsNoOrphan,
	"OnlyRunsOfTheirOwnAreOrphans":          onlyRunsOfTheirOwnAreOrphans,
	"ADriverOfAStoppedRunIsTold":            aDriverOfAStoppedRunIsTold,
	"AStoppedRunIsAnOrphanUntilItIsOver":    aStoppedRunIsAnOrphanUntilItIsOver,
	"AsManyOrphansAsAskedFor":               asManyOrphansAsAskedFor,
	"EachOrphanIsClaimedOnce":               eachOrphanIsClaimedOnce,
	"AClaimByNobodyWaitsForADriver":         aClaimByNobodyWaitsForADriver,
	"ASealedCredentialIsKeptUntilTheEnd":    aSealedCredentialIsKeptUntilTheEnd,
	"ASealedCredentialGoesWithAStop":        aSealedCredentialGoesWithAStop,
	"ASealedCredentialIsNotReadWithTheRest": aSealedCredentialIsNotReadWithTheRest,
}

// orphaned returns the ids of the orphans, where owner is alive and skipped is
// not asked for.
func orphaned(t *testing.T, s Store, limit int, owner string, skipped ...agentbus.ExecutionID) (ids []agentbus.ExecutionID) {
	t.Helper()
	found, err := s.Orphans(t.Context(), agentbus.Claim{}, limit, func(of string) bool { return of == owner }, func(id agentbus.ExecutionID) bool { return slices.Contains(skipped, id) })
	ok(t, "orphans", err)
	for i := range found {
		ids = append(ids, found[i].ID)
	}
	return ids
}

// claimed opens an execution for an owner.
func claimed(t *testing.T, s Store, e agentbus.Execution, c agentbus.Claim) agentbus.Execution {
	t.Helper()
	got, err := s.Open(t.Context(), e, c)
	ok(t, "open", err)
	return got
}

func aRunWithoutADriverIsFound(p *place) { // R19
	t := p.t
	dead := claimed(t, p, execution("run_dead"), agentbus.Claim{Owner: "host:2", TTL: time.Hour})
	claimed(t, p, execution("run_silent"), agentbus.Claim{Owner: "host:1", TTL: -time.Second})
	claimed(t, p, execution("run_new"), agentbus.Claim{})
	same(t, "orphans", orphaned(t, p, 9, "host:1"), []agentbus.ExecutionID{"run_new", "run_silent", "run_dead"})
	same(t, "but one", orphaned(t, p, 9, "host:1", "run_silent"), []agentbus.ExecutionID{"run_new", "run_dead"})
	p.reopen()
	all, err := p.Orphans(t.Context(), agentbus.Claim{}, 9, func(of string) bool { return of == "host:1" }, func(id agentbus.ExecutionID) bool { return id != "run_dead" })
	ok(t, "orphans", err)
	same(t, "an orphan", all, []agentbus.Execution{dead})
}

func aRunThatIsDrivenIsNoOrphan(p *place) { // R17, R19
	t := p.t
	e := opened(t, p, "run_a")
	same(t, "driven", len(orphaned(t, p, 9, "host:1")), 0)
	ok(t, "halt", p.Halt(t.Context(), e.Lease, agentbus.Halt{Kind: agentbus.HaltAbort}))
	same(t, "paused", len(orphaned(t, p, 9, "")), 0)
	e = opened(t, p, "run_a")
	same(t, "resumed", len(orphaned(t, p, 9, "host:1")), 0)
	same(t, "its driver died", len(orphaned(t, p, 9, "")), 1)
	ok(t, "halt", p.Halt(t.Context(), e.Lease, agentbus.Halt{Kind: agentbus.HaltDone}))
	same(t, "done", len(orphaned(t, p, 9, "")), 0)
}

func onlyRunsOfTheirOwnAreOrphans(p *place) { // R19
	t := p.t
	nested := execution("run_nested")
	nested.Run, nested.Parent, nested.Path = "run_a", "run_a.t0.x", "0123456789abcdef"
	called := execution("run_called")
	called.Run = "run_b"
	for _, e := range []agentbus.Execution{nested, called} {
		claimed(t, p, e, agentbus.Claim{Owner: "host:2", TTL: time.Hour})
	}
	same(t, "orphans", len(orphaned(t, p, 9, "")), 0)
}

func aStoppedRunIsAnOrphanUntilItIsOver(p *place) { // R16, R19
	t := p.t
	opened(t, p, "run_a")
	ok(t, "stop", p.StopRun(t.Context(), "run_a", "ops", "", began))
	same(t, "driven", len(orphaned(t, p, 9, "host:1")), 0)
	found, err := p.Orphans(t.Context(), agentbus.Claim{Owner: "host:2", TTL: time.Hour}, 9, func(string) bool { return false }, func(agentbus.ExecutionID) bool { return false })
	ok(t, "claim", err)
	same(t, "its driver died", len(found), 1)
	_, err = p.Renew(t.Context(), found[0].Lease, time.Hour)
	refused(t, "renew", err, agentbus.CodeRunStopped)
	ok(t, "halt", p.Halt(t.Context(), found[0].Lease, agentbus.Halt{Kind: agentbus.HaltAbort, Failed: true}))
	same(t, "over", len(orphaned(t, p, 9, "")), 0)
}

func aDriverOfAStoppedRunIsTold(p *place) { // R16
	t := p.t
	e := opened(t, p, "run_a")
	other := opened(t, p, "run_b")
	ok(t, "stop", p.StopRun(t.Context(), "run_a", "ops", "", began))
	_, err := p.Renew(t.Context(), e.Lease, time.Hour)
	refused(t, "renew", err, agentbus.CodeRunStopped)
	_, err = p.Renew(t.Context(), other.Lease, time.Hour)
	ok(t, "renew another", err)
	ok(t, "halt", p.Halt(t.Context(), e.Lease, agentbus.Halt{Kind: agentbus.HaltAbort}))
	_, err = p.Renew(t.Context(), e.Lease, time.Hour)
	refused(t, "renew what was given back", err, agentbus.CodeLeaseLost)
}

func asManyOrphansAsAskedFor(p *place) { // R19
	t := p.t
	for _, id := range []agentbus.ExecutionID{"run_a", "run_b", "run_c"} {
		opened(t, p, id)
		claimed(t, p, execution(id+"2"), agentbus.Claim{})
	}
	for limit := range 7 {
		same(t, "orphans", len(orphaned(t, p, limit, "")), limit)
	}
	same(t, "orphans", len(orphaned(t, p, 7, "")), 6)
}

// eachOrphanIsClaimedOnce: of many that look for runs at once each gets others,
// and none a run that is driven, and their leases fence who had them.
func eachOrphanIsClaimedOnce(p *place) { // R17, R19
	t := p.t
	const runs, lookers = 24, 4
	for i := range runs {
		claimed(t, p, execution(agentbus.ExecutionID("run_"+strconv.Itoa(i))), agentbus.Claim{})
	}
	before := claimed(t, p, execution("run_dead"), agentbus.Claim{Owner: "host:dead", TTL: time.Hour})
	driven := claimed(t, p, execution("run_driven"), agentbus.Claim{Owner: "host:alive", TTL: time.Hour})
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[agentbus.ExecutionID]agentbus.Lease{}
	for i := range lookers {
		me := "host:" + strconv.Itoa(i)
		wg.Go(func() {
			for range runs {
				found, err := p.Orphans(t.Context(), agentbus.Claim{Owner: me, TTL: time.Hour}, 3, func(of string) bool { return of != "host:dead" },
					func(agentbus.ExecutionID) bool { return false })
				if err != nil {
					t.Errorf("orphans: %v", err)
				}
				mu.Lock()
				for j := range found {
					l := found[j].Lease
					if _, twice := got[found[j].ID]; twice || l.Owner != me || l.Epoch != 2 || l.Expires.IsZero() {
						t.Errorf("claimed: %+v, before: %+v", l, got[found[j].ID])
					}
					got[found[j].ID] = l
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	same(t, "claimed", len(got), runs+1)
	_, err := p.Begin(t.Context(), []agentbus.Turn{turn(before, 0)})
	refused(t, "write under the lease before", err, agentbus.CodeLeaseLost)
	begin(t, p, turn(driven, 0))
	own := claimed(t, p, execution("run_0"), agentbus.Claim{Owner: got["run_0"].Owner, TTL: time.Hour})
	same(t, "its driver's epoch", own.Lease.Epoch, uint64(3))
}

func aClaimByNobodyWaitsForADriver(p *place) { // R19
	t := p.t
	e := claimed(t, p, execution("run_a"), agentbus.Claim{})
	if e.State != agentbus.RunRunning || e.Lease != (agentbus.Lease{Execution: "run_a", Epoch: 1}) {
		t.Errorf("begun for nobody: %+v", e)
	}
	driven := claimed(t, p, execution("run_a"), agentbus.Claim{Owner: "host:1", TTL: time.Hour})
	begin(t, p, turn(driven, 0))
	_, err := p.Open(t.Context(), execution("run_a"), agentbus.Claim{})
	refused(t, "hand back another's", err, agentbus.CodeRunConflict)
	back := claimed(t, p, execution("run_a"), agentbus.Claim{TakeOver: driven.Lease.Epoch})
	if back.State != agentbus.RunRunning || back.Lease != (agentbus.Lease{Execution: "run_a", Epoch: 3}) {
		t.Errorf("handed back: %+v", back)
	}
	refused(t, "write after handing back", p.Finish(t.Context(), done(turn(driven, 0), "x"), nil), agentbus.CodeLeaseLost)
	same(t, "orphans", orphaned(t, p, 9, "host:1"), []agentbus.ExecutionID{"run_a"})
}

// isSealed reports what is sealed with an execution.
func isSealed(t *testing.T, s Store, id agentbus.ExecutionID, want string) {
	t.Helper()
	got, found, err := s.Sealed(t.Context(), id)
	ok(t, "sealed", err)
	if string(got) != want || found != (want != "") {
		t.Errorf("sealed with %s: %q, %v, want %q", id, got, found, want)
	}
}

func aSealedCredentialIsKeptUntilTheEnd(p *place) { // R18
	t := p.t
	e := execution("run_a")
	claim := agentbus.Claim{Owner: "host:1", TTL: time.Hour}
	e.Sealed = []byte("\x00sealed")
	got := claimed(t, p, e, claim)
	isSealed(t, p, "run_a", "\x00sealed")
	ok(t, "halt", p.Halt(t.Context(), got.Lease, agentbus.Halt{Kind: agentbus.HaltBudget}))
	p.reopen()
	isSealed(t, p, "run_a", "\x00sealed")
	claimed(t, p, execution("run_a"), claim)
	isSealed(t, p, "run_a", "\x00sealed")
	e.Sealed = []byte("anew")
	got = claimed(t, p, e, claim)
	isSealed(t, p, "run_a", "anew")
	ok(t, "halt", p.Halt(t.Context(), got.Lease, agentbus.Halt{Kind: agentbus.HaltDone}))
	isSealed(t, p, "run_a", "")
	claimed(t, p, e, claim)
	isSealed(t, p, "run_a", "")
}

func aSealedCredentialGoesWithAStop(p *place) { // R18
	t := p.t
	for _, id := range []agentbus.ExecutionID{"run_a", "run_b"} {
		e := execution(id)
		e.Sealed = []byte(id)
		claimed(t, p, e, agentbus.Claim{})
	}
	ok(t, "stop", p.StopRun(t.Context(), "run_a", "ops", "", began))
	isSealed(t, p, "run_a", "")
	isSealed(t, p, "run_b", "run_b")
	e := execution("run_a")
	e.Sealed = []byte("again")
	claimed(t, p, e, agentbus.Claim{})
	isSealed(t, p, "run_a", "")
}

func aSealedCredentialIsNotReadWithTheRest(p *place) { // R18
	t := p.t
	e := execution("run_a")
	e.Sealed = []byte("sealed")
	read := []agentbus.Execution{claimed(t, p, e, agentbus.Claim{}), claimed(t, p, e, agentbus.Claim{}), stored(t, p, "run_a")}
	all, err := p.Executions(t.Context(), "run_a")
	ok(t, "executions", err)
	for _, e := range append(read, all...) {
		if e.Sealed != nil {
			t.Errorf("read with its sealed credential: %+v", e)
		}
	}
}
