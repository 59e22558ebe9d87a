package storetest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
)

// Tasks are what the face of A2A keeps, and what its client does (A19, A24, A25).
type Tasks interface {
	CreateTask(ctx context.Context, t agentbus.Task, m agentbus.TaskMessage) (made agentbus.Task, digest agentbus.Digest, known bool, err error)
	UpdateTask(ctx context.Context, t agentbus.Task, m *agentbus.TaskMessage) error
	Task(ctx context.Context, id string) (t agentbus.Task, found bool, err error)
	TaskOf(ctx context.Context, principal, agent, message string) (t agentbus.Task, digest agentbus.Digest, found bool, err error)
	Tasks(ctx context.Context, q agentbus.TaskQuery) (tasks []agentbus.Task, total int, err error)
	DeadTasks(ctx context.Context, alive func(owner string) bool, limit int) ([]agentbus.Task, error)
	DecidedTasks(ctx context.Context, skip func(id string) bool, limit int) ([]agentbus.Task, error)
	Session(ctx context.Context, key agentbus.Digest) (state []byte, found bool, err error)
	KeepSession(ctx context.Context, key agentbus.Digest, state []byte, at time.Time) error
	TakeSession(ctx context.Context, key agentbus.Digest, state []byte) (taken bool, err error)
}

var tasks = map[string]func(*place){
	"AMessageMakesOneTask":               aMessageMakesOneTask,
	"ATaskIsChangedByOne":                aTaskIsChangedByOne,
	"TasksAreListedInPages":              tasksAreListedInPages,
	"TasksOfDeadProcessesAreFound":       tasksOfDeadProcessesAreFound,
	"TasksGoOnWhenTheirWaitIsDecided":    tasksGoOnWhenTheirWaitIsDecided,
	"MessagesAndTasksAreForgottenInTime": messagesAndTasksAreForgottenInTime,
	"ASessionIsWhatWasKeptLast":          aSessionIsWhatWasKeptLast,
	"ASessionIsTakenByOne":               aSessionIsTakenByOne,
}

func task(id string) agentbus.Task {
	return agentbus.Task{
		ID: id, Agent: "critic", Principal: "user:zoë", Payer: "user:zoë", Context: "ctx", State: "TASK_STATE_SUBMITTED", Version: 1, Owner: "p1",
		Created: began, Updated: began, Shown: []byte(difficult), Work: []byte("work"), Sealed: []byte{0, 1},
	}
}

func message(id string) agentbus.TaskMessage {
	return agentbus.TaskMessage{ID: id, Digest: agentbus.TurnKey{Agent: id}.Hash()}
}

func (p *place) create(t agentbus.Task, m agentbus.TaskMessage) {
	p.t.Helper()
	_, _, known, err := p.CreateTask(p.t.Context(), t, m)
	ok(p.t, "create a task", err)
	same(p.t, "known", known, false)
}

func aMessageMakesOneTask(p *place) { // A19, X35
	t := p.t
	var made atomic.Int32
	together(50, func(i int) {
		got, digest, known, err := p.CreateTask(t.Context(), task("run_"+strconv.Itoa(i)), message("m"))
		ok(t, "create", err)
		if !known {
			made.Add(1)
			same(t, "its id", got.ID, "run_"+strconv.Itoa(i))
		}
		same(t, "the digest", digest, message("m").Digest)
	})
	same(t, "tasks made", made.Load(), 1)
	p.reopen()
	got, digest, found, err := p.TaskOf(t.Context(), "user:zoë", "critic", "m")
	ok(t, "find", err)
	want := task(got.ID)
	same(t, "the task", got, want)
	same(t, "found", found, true)
	same(t, "the digest", digest, message("m").Digest)
	for _, other := range [][3]string{{"user:bob", "critic", "m"}, {"user:zoë", "other", "m"}, {"user:zoë", "critic", "n"}} {
		_, _, found, err := p.TaskOf(t.Context(), other[0], other[1], other[2])
		ok(t, "find another's", err)
		same(t, "found another's", found, false)
	}
}

func aTaskIsChangedByOne(p *place) { // A25
	t := p.t
	p.create(task("run_a"), message("m"))
	next := task("run_a")
	next.Version, next.State, next.Owner, next.Work, next.Sealed, next.Updated = 2, "TASK_STATE_INPUT_REQUIRED", "", []byte("more"), nil, began.Add(time.Second)
	var won atomic.Int32
	together(8, func(int) {
		err := p.UpdateTask(t.Context(), next, nil)
		if err == nil {
			won.Add(1)
			return
		}
		refused(t, "a second change", err, agentbus.CodeLeaseLost)
	})
	same(t, "changes", won.Load(), 1)
	got, _, err := p.Task(t.Context(), "run_a")
	ok(t, "read", err)
	same(t, "the task", got, next)
	next.Version = 3
	refused(t, "a message that is known", p.UpdateTask(t.Context(), next, &agentbus.TaskMessage{ID: "m"}), agentbus.CodeTurnMismatch)
	n := message("n")
	ok(t, "go on", p.UpdateTask(t.Context(), next, &n))
	_, _, found, err := p.TaskOf(t.Context(), "user:zoë", "critic", "n")
	ok(t, "find", err)
	same(t, "the second message is known", found, true)
	next.Version = 4
	ok(t, "forget", p.UpdateTask(t.Context(), next, &agentbus.TaskMessage{Forget: true}))
	_, _, found, err = p.TaskOf(t.Context(), "user:zoë", "critic", "m")
	ok(t, "find", err)
	same(t, "the first message is known", found, false)
}

func tasksAreListedInPages(p *place) { // A25
	t := p.t
	for i := range 7 {
		one := task("run_" + strconv.Itoa(i))
		one.Updated = began.Add(time.Duration(i/2) * time.Second) // some at once
		if i == 6 {
			one.Context = "elsewhere"
		}
		p.create(one, message(strconv.Itoa(i)))
	}
	q := agentbus.TaskQuery{Agent: "critic", Principal: "user:zoë", Context: "ctx", Limit: 4}
	var ids []string
	for {
		page, total, err := p.Tasks(t.Context(), q)
		ok(t, "list", err)
		same(t, "in all", total, 6)
		if len(page) == 0 {
			break
		}
		for i := range page {
			ids = append(ids, page[i].ID)
		}
		q.Before, q.BeforeID = page[len(page)-1].Updated, page[len(page)-1].ID
	}
	same(t, "the tasks", ids, []string{"run_5", "run_4", "run_3", "run_2", "run_1", "run_0"})
	_, total, err := p.Tasks(t.Context(), agentbus.TaskQuery{Agent: "critic", Principal: "user:zoë", Since: began.Add(2 * time.Second), Limit: 1})
	ok(t, "list", err)
	same(t, "since", total, 3)
	_, total, err = p.Tasks(t.Context(), agentbus.TaskQuery{Agent: "critic", Principal: "user:bob", Limit: 1})
	ok(t, "list", err)
	same(t, "another's", total, 0)
}

func tasksOfDeadProcessesAreFound(p *place) { // A32
	t := p.t
	for i, owner := range []string{"dead", "alive", "dead", ""} {
		one := task("run_" + strconv.Itoa(i))
		one.Owner = owner
		p.create(one, message(strconv.Itoa(i)))
	}
	alive := func(owner string) bool { return owner == "alive" }
	dead, err := p.DeadTasks(t.Context(), alive, 10)
	ok(t, "find", err)
	var ids []string
	for i := range dead {
		ids = append(ids, dead[i].ID)
	}
	same(t, "the dead", ids, []string{"run_0", "run_2"})
	dead, err = p.DeadTasks(t.Context(), alive, 1)
	ok(t, "find one", err)
	same(t, "at most one", len(dead), 1)
}

func messagesAndTasksAreForgottenInTime(p *place) { // A19
	t := p.t
	over := task("run_over")
	over.Work, over.Owner, over.State = nil, "", "TASK_STATE_COMPLETED"
	p.create(over, message("m"))
	p.create(task("run_open"), message("n"))
	later := task("run_later")
	later.Created, later.Updated = began.Add(agentbus.TaskMessageAge+time.Second), began.Add(agentbus.TaskMessageAge+time.Second)
	p.create(later, message("m")) // a day later it is another one
	late := task("run_late")
	late.Created, late.Updated = began.Add(agentbus.TaskAge+time.Second), began.Add(agentbus.TaskAge+time.Second)
	p.create(late, message("o"))
	for id, want := range map[string]bool{"run_over": false, "run_open": true, "run_later": true} {
		_, found, err := p.Task(t.Context(), id)
		ok(t, "read", err)
		same(t, id, found, want)
	}
}

func aSessionIsWhatWasKeptLast(p *place) { // A24
	t := p.t
	key := agentbus.TurnKey{Agent: "a"}.Hash()
	ok(t, "keep", p.KeepSession(t.Context(), key, []byte("one"), began))
	ok(t, "keep", p.KeepSession(t.Context(), key, []byte("two"), began))
	p.reopen()
	state, found, err := p.Session(t.Context(), key)
	ok(t, "read", err)
	same(t, "found", found, true)
	same(t, "the session", string(state), "two")
	ok(t, "keep", p.KeepSession(t.Context(), agentbus.TurnKey{Agent: "b"}.Hash(), []byte("x"), began.Add(agentbus.RemoteTaskAge+time.Second)))
	_, found, err = p.Session(t.Context(), key)
	ok(t, "read", err)
	same(t, "an old one", found, false)
}

func aSessionIsTakenByOne(p *place) { // C30, X22
	t := p.t
	key := agentbus.TurnKey{Agent: "a"}.Hash()
	take := func(state string, want bool) {
		t.Helper()
		taken, err := p.TakeSession(t.Context(), key, []byte(state))
		ok(t, "take", err)
		same(t, "taken "+state, taken, want)
	}
	take("one", false)
	ok(t, "keep", p.KeepSession(t.Context(), key, []byte("one"), began))
	ok(t, "keep", p.KeepSession(t.Context(), key, []byte("two"), began))
	take("one", false) // it was replaced since it was read
	var winners atomic.Int64
	var takers sync.WaitGroup
	for range 20 {
		takers.Go(func() {
			taken, err := p.TakeSession(t.Context(), key, []byte("two"))
			ok(t, "take", err)
			if taken {
				winners.Add(1)
			}
		})
	}
	takers.Wait()
	same(t, "winners", winners.Load(), int64(1))
	p.reopen()
	take("two", false)
}

func tasksGoOnWhenTheirWaitIsDecided(p *place) { // R22
	t := p.t
	first, second := parked(t, p, "run_a"), parked(t, p, "run_b")
	wait := func(id string, on ...agentbus.InterruptID) agentbus.Task {
		of := task(id)
		p.create(of, message(id))
		of.Version, of.State, of.Owner, of.Waits = 2, "TASK_STATE_INPUT_REQUIRED", "", on
		ok(t, "wait", p.UpdateTask(t.Context(), of, nil))
		return of
	}
	both, one := wait("run_1", second.ID, first.ID), wait("run_2", second.ID)
	wait("run_3")
	wait("run_4", "int_unknown")
	decided := func(limit int, but ...string) (ids []string) {
		got, err := p.DecidedTasks(t.Context(), func(id string) bool { return slices.Contains(but, id) }, limit)
		ok(t, "find", err)
		for i := range got {
			ids = append(ids, got[i].ID)
		}
		return ids
	}
	same(t, "before a decision", decided(9), nil)
	_, err := p.Resolve(t.Context(), first.ID, granted("zoë"))
	ok(t, "resolve", err)
	p.reopen()
	same(t, "after the first", decided(9), []string{"run_1"})
	got, _, err := p.Task(t.Context(), "run_1")
	ok(t, "read", err)
	same(t, "the task", got, both)
	_, err = p.Resolve(t.Context(), second.ID, agentbus.Resolution{Decision: agentbus.DecisionDenied, At: began.Add(time.Minute)})
	ok(t, "resolve", err)
	same(t, "after both", decided(9), []string{"run_1", "run_2"})
	same(t, "as many as asked for", decided(1), []string{"run_1"})
	same(t, "but one", decided(9, "run_1"), []string{"run_2"})
	one.Version, one.Waits = 3, nil
	ok(t, "go on", p.UpdateTask(t.Context(), one, nil))
	same(t, "after one went on", decided(9), []string{"run_1"})
}
