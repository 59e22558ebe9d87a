package storetest

import (
	"time"

	"github.com/agentbus/agentbus"
)

var remoteTasks = map[string]func(*place){
	"ARemoteTaskIsFoundWhereItWasSeen": aRemoteTaskIsFoundWhereItWasSeen,
	"ARemoteTaskStaysItsPayers":        aRemoteTaskStaysItsPayers,
	"ARemoteTaskIsForgottenInTime":     aRemoteTaskIsForgottenInTime,
	"RemoteTasksAreSeenWithTheirCall":  remoteTasksAreSeenWithTheirCall,
	"OthersRemoteTasksAreTold":         othersRemoteTasksAreTold,
}

func (p *place) sees(t agentbus.RemoteTask) {
	p.t.Helper()
	ok(p.t, "see a task", p.SeeRemoteTask(p.t.Context(), t))
}

func (p *place) remote(id string) (t agentbus.RemoteTask, found bool) {
	p.t.Helper()
	t, found, err := p.RemoteTask(p.t.Context(), "critic", id)
	ok(p.t, "look up a task", err)
	return t, found
}

// remoteTask is a task that was seen a while ago.
func remoteTask(id string, ago time.Duration) agentbus.RemoteTask {
	return agentbus.RemoteTask{Agent: "critic", ID: id, Upstream: "http://a", Payer: zoe, Context: "c1", Seen: time.Now().Add(-ago).UTC().Truncate(time.Microsecond)}
}

func aRemoteTaskIsFoundWhereItWasSeen(p *place) { // A12
	t := p.t
	first, second := remoteTask("t1", time.Hour), remoteTask("t2", time.Minute)
	second.Upstream = "http://b"
	p.sees(first)
	p.sees(second)
	p.reopen()
	got, _ := p.remote("t1")
	same(t, "task", got, first)
	if _, found := p.remote("t3"); found {
		t.Error("a task was found that nobody saw")
	}
	again := first
	again.Upstream, again.Context, again.Seen = "http://c", "", time.Now().UTC().Truncate(time.Microsecond)
	p.sees(again)
	again.Context = "c1" // it was told before
	got, _ = p.remote("t1")
	same(t, "task seen again", got, again)
	got, found, err := p.RemoteContext(t.Context(), "critic", zoe, "c1")
	ok(t, "look up a context", err)
	same(t, "found", found, true)
	same(t, "last task of the context", got, again)
	for _, other := range []agentbus.RemoteTask{{Agent: "critic", Payer: "bob", Context: "c1"}, {Agent: "writer", Payer: zoe, Context: "c1"}, {Agent: "critic", Payer: zoe, Context: "c2"}} {
		if _, found, err := p.RemoteContext(t.Context(), other.Agent, other.Payer, other.Context); found || err != nil {
			t.Errorf("%+v: found %v, %v", other, found, err)
		}
	}
}

func aRemoteTaskStaysItsPayers(p *place) { // X34
	mine := remoteTask("t1", time.Minute)
	p.sees(mine)
	theirs := mine
	theirs.Payer, theirs.Upstream = "mallory", "http://evil"
	p.sees(theirs)
	got, _ := p.remote("t1")
	same(p.t, "task", got, mine)
}

func aRemoteTaskIsForgottenInTime(p *place) { // A12
	t := p.t
	for i, id := range []string{"t1", "t2", "t3"} {
		p.sees(remoteTask(id, agentbus.RemoteTaskAge+time.Duration(3-i)*time.Hour))
	}
	young := remoteTask("t4", time.Hour)
	p.sees(young)
	if _, found := p.remote("t1"); found {
		t.Error("an old task was found")
	}
	theirs := remoteTask("t3", 0)
	theirs.Payer = "bob" // agents count their tasks anew
	p.sees(theirs)
	for _, want := range []int{1, 1, 0} {
		n, err := p.ForgetRemoteTasks(t.Context(), time.Now().Add(-agentbus.RemoteTaskAge), 1)
		ok(t, "forget", err)
		same(t, "forgotten", n, want)
	}
	for _, want := range []agentbus.RemoteTask{young, theirs} {
		got, _ := p.remote(want.ID)
		same(t, "task", got, want)
	}
}

func remoteTasksAreSeenWithTheirCall(p *place) { // A12, X34
	t := p.t
	mine, theirs := remoteTask("t1", time.Minute), remoteTask("t2", time.Minute)
	theirs.Payer = "bob"
	p.sees(theirs)
	call := reserve(t, p, reservation("run_a", 0))
	claim := settlement(call, "told")
	other := theirs
	other.Payer = zoe
	for _, tasks := range [][]agentbus.RemoteTask{{other}, {mine, other}} {
		claim.Tasks = tasks
		refused(t, "settle another's task", p.Settle(t.Context(), claim), agentbus.CodeRunNotFound)
	}
	same(t, "state", oneCall(t, p).State, agentbus.CallExecuting)
	if _, found := p.remote("t1"); found {
		t.Error("a task was seen with a call that was not settled")
	}
	claim.Tasks = []agentbus.RemoteTask{mine}
	ok(t, "settle", p.Settle(t.Context(), claim))
	p.reopen()
	same(t, "state", oneCall(t, p).State, agentbus.CallSettled)
	for _, want := range []agentbus.RemoteTask{mine, theirs} {
		got, _ := p.remote(want.ID)
		same(t, "task", got, want)
	}
}

func othersRemoteTasksAreTold(p *place) { // A12
	t := p.t
	tell := func(want bool, agent string, payer agentbus.Payer) {
		t.Helper()
		got, err := p.OthersRemoteTasks(t.Context(), agent, payer)
		ok(t, "look for tasks of others", err)
		same(t, "others of "+string(payer)+" at "+agent, got, want)
	}
	tell(false, "critic", zoe)
	p.sees(remoteTask("t1", time.Minute))
	tell(false, "critic", zoe)
	for _, other := range []agentbus.Payer{"bob", "zz"} { // before and behind
		tell(true, "critic", other)
	}
	tell(false, "writer", "bob")
	old := remoteTask("t2", agentbus.RemoteTaskAge+time.Hour)
	old.Payer = "bob"
	p.sees(old)
	tell(false, "critic", zoe)
}
