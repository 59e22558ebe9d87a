package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/gateway"
)

// replicas are those of one agent, each with tasks of its own.
func replicas(t *testing.T, serve func(name string) http.HandlerFunc) (front *agent, all []*agent) {
	t.Helper()
	for _, name := range []string{"one", "two"} {
		all = append(all, newA2A(t, "critic", serve(name)))
	}
	front = all[0]
	front.URLs, front.URL = []*url.URL{all[0].URL, all[1].URL}, nil
	return front, all
}

// taskOn answers with a task whose id tells the replica.
func taskOn(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		task := `{"id":"task-` + name + `","contextId":"ctx-` + name + `","status":{"state":"TASK_STATE_COMPLETED"}}`
		body := `{"jsonrpc":"2.0","id":"r1","result":` + task + `}`
		if strings.Contains(r.URL.Path, "/message:send") {
			body = `{"task":` + task + `}`
		}
		answerWith(http.StatusOK, body)(w, r)
	}
}

// A12, A13: a task is where it was seen, also for the next process; an unknown
// one is asked of the first; the agent's ids are the caller's.
func TestA2ATasksAreWhereTheyWereSeen(t *testing.T) {
	t.Parallel()
	front, all := replicas(t, taskOn)
	store := openStore(t, t.TempDir()+"/bus.db")
	with := func(c *gateway.Config) { c.A2A.Tasks = store }
	first, second := busOver(t, store, "", with, front), busOver(t, store, "", with, front)
	seen := map[string]bool{}
	for i := range 4 {
		got := first.send(http.MethodPost, "/a2a/critic/rest/message:send", strings.ReplaceAll(say("m"), "m", "m"+string(rune('a'+i))), asAlice)
		seen[gjson.Get(got.body, "task.id").Str] = true
	}
	if len(seen) != 2 {
		t.Fatalf("the replicas did not take turns: %v", seen)
	}
	for _, b := range []*bus{first, second} {
		for at, name := range []string{"one", "two"} {
			before := all[at].executions()
			if got := b.send(http.MethodPost, "/a2a/critic", rpc("r1", "GetTask", `{"id":"task-`+name+`"}`), asAlice); gjson.Get(got.body, "result.id").Str != "task-"+name {
				t.Errorf("%s: %v", name, got)
			}
			if all[at].executions() == before {
				t.Errorf("task-%s was asked elsewhere", name)
			}
		}
		before := all[0].executions()
		_ = b.send(http.MethodPost, "/a2a/critic", rpc("r1", "GetTask", `{"id":"unheard"}`), asAlice)
		if all[0].executions() == before {
			t.Error("an unknown task was not asked of the first")
		}
		if got := b.send(http.MethodPost, "/a2a/critic", rpc("r1", "ListTasks", `{}`), asAlice); fault(got) != "200 -32004 UNSUPPORTED_OPERATION" {
			t.Error(got)
		}
		for _, got := range []answer{
			b.send(http.MethodPost, "/a2a/critic", rpc("r1", "ListTasks", `{"contextId":"ctx-two"}`), asAlice),
			b.send(http.MethodGet, "/a2a/critic/rest/tasks?contextId=ctx-two", "", asAlice),
		} {
			if gjson.Get(got.body, "result.id").Str != "task-two" {
				t.Error(got)
			}
		}
		if got := b.send(http.MethodGet, "/a2a/critic/rest/tasks", "", asAlice); fault(got) != "400 400 UNSUPPORTED_OPERATION" {
			t.Error(got)
		}
	}
}

// X34: another's task is as good as none, in every method and binding, and
// nobody is asked.
func TestA2AAnothersTask(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", taskOn("x"))
	b := newBus(t, nil, a)
	if got := b.send(http.MethodPost, "/a2a/critic/rest/message:send", say("m"), asAlice); got.status != http.StatusOK {
		t.Fatal(got)
	}
	before := a.executions()
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/a2a/critic", rpc("r1", "GetTask", `{"id":"task-x"}`), "200 -32001 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic", rpc("r1", "tasks/cancel", `{"id":"task-x"}`), "200 -32001 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic", rpc("r1", "SubscribeToTask", `{"id":"task-x"}`), "200 -32001 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic", rpc("r1", "SendMessage", `{"message":{"task_id":"task-x"}}`), "200 -32001 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic", rpc("r1", "ListTaskPushNotificationConfigs", `{"taskId":"task-x"}`), "200 -32001 TASK_NOT_FOUND"},
		{"GET", "/a2a/critic/rest/tasks/task-x", "", "404 404 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic/rest/message:send", `{"message":{"taskId":"task-x"}}`, "404 404 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic/rest/v1/message:send", `{"request":{"task_id":"task-x"}}`, "404 404 TASK_NOT_FOUND"},
		{"GET", "/a2a/critic/rest//tasks/task%2Dx/", "", "404 404 TASK_NOT_FOUND"},
		{"GET", "/a2a/critic/rest/acme/tasks/task-x:subscribe", "", "404 404 TASK_NOT_FOUND"},
		{"DELETE", "/a2a/critic/rest/tasks/task-x/pushNotificationConfigs/1", "", "404 404 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic", rpc("r1", "getTask", `{"id":"task-x"}`), "200 -32001 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic", rpc("r1", "acme/forget", `{"id":"task-x"}`), "200 -32001 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic", rpc("r1", "acme/forget", `{"task_id":"task-x","id":"1"}`), "200 -32001 TASK_NOT_FOUND"},
		{"PUT", "/a2a/critic/rest/tasks/task-x/pushNotificationConfigs/1", "{}", "404 404 TASK_NOT_FOUND"},
		{"DELETE", "/a2a/critic/rest/v1/tasks/task-x", "", "404 404 TASK_NOT_FOUND"},
		{"POST", "/a2a/critic/rest/tasks/task%2dx:forget", "{}", "404 404 TASK_NOT_FOUND"},
	} {
		got := b.send(c.method, c.path, c.body, asBob)
		if strings.Contains(c.body, "SubscribeToTask") { // A14: who reads events reads an event
			body, isEvent := strings.CutPrefix(got.body, "data: ")
			if got.body = strings.TrimSuffix(body, "\n\n"); !isEvent || got.header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("a stream is refused as %v %v", got, got.header)
			}
		}
		if fault(got) != c.want {
			t.Errorf("%s %s: %v", c.method, c.path, got)
		}
	}
	if n := a.executions(); n != before {
		t.Errorf("the agent was asked %d times", n-before)
	}
	// An answer that tells of another's task is not given either.
	for _, body := range []string{rpc("r1", "GetTask", `{"id":"alias-of-x"}`), rpc("r1", "ListTasks", `{}`)} {
		if got := b.send(http.MethodPost, "/a2a/critic", body, asBob); fault(got) != "200 -32001 TASK_NOT_FOUND" || strings.Contains(got.body, "ctx-x") {
			t.Errorf("%v", got)
		}
	}
	if got := b.send(http.MethodPost, "/a2a/critic", rpc("r1", "GetTask", `{"id":"task-x"}`), asRelay, forAlice); gjson.Get(got.body, "result.id").Str != "task-x" {
		t.Errorf("the principal's agent: %v", got)
	}
}

// A12: a list tells of the caller's tasks only, and counts nobody else's; what is
// left of it is as the agent wrote it, the token of the next page too.
func TestA2AListsAreOfTheCaller(t *testing.T) {
	t.Parallel()
	const task = `{"id":"%s", "contextId":"c","status":{"state":"TASK_STATE_WORKING"},"x":1.50}`
	theirs, mine, fresh := fmt.Sprintf(task, "theirs"), fmt.Sprintf(task, "mine"), fmt.Sprintf(task, "fresh")
	const page = `{"tasks":[%s], "nextPageToken":"p\u002b2","pageSize":3,"totalSize":%d,"y":[]}`
	a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		body := fmt.Sprintf(page, theirs+" ,"+mine+","+theirs+","+fresh, 41)
		if strings.Contains(r.RequestURI, "pageToken=2") || strings.Contains(a2aBody(r), "pageToken") {
			body = fmt.Sprintf(page, theirs, 41)
		}
		if r.Method == http.MethodPost {
			body = `{"result":` + body + `,"jsonrpc":"2.0","id":"r1"}`
		}
		w.Header().Set("Etag", `"x"`)
		answerWith(http.StatusOK, body)(w, r)
	})
	store := openStore(t, t.TempDir()+"/bus.db")
	b := busOver(t, store, "", func(c *gateway.Config) { c.A2A.Tasks = store }, a)
	lists := func(params, query string) [2]answer {
		return [2]answer{
			b.send(http.MethodPost, "/a2a/critic", rpc("r1", "ListTasks", params), asAlice),
			b.send(http.MethodGet, "/a2a/critic/rest/tasks"+query, "", asAlice),
		}
	}
	see := func(id string, payer agentbus.Payer) {
		if err := store.SeeRemoteTask(t.Context(), agentbus.RemoteTask{Agent: "critic", ID: id, Payer: payer, Upstream: a.URL.String(), Seen: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, want string, got [2]answer) {
		t.Helper()
		for i, body := range []string{`{"result":` + want + `,"jsonrpc":"2.0","id":"r1"}`, want} {
			if got[i].status != http.StatusOK || got[i].body != body {
				t.Errorf("%s: %v, want %s", what, got[i], body)
			}
		}
	}
	see("mine", "alice")
	see("theirs", "somebody")
	got := lists("{}", "")
	check("some of others", fmt.Sprintf(page, mine+","+fresh, 2), got)
	if got[1].header.Get("Etag") != "" || got[1].header.Get("Content-Length") != strconv.Itoa(len(got[1].body)) {
		t.Error(got[1].header)
	}
	check("all of others", fmt.Sprintf(page, "", 0), lists(`{"pageToken":"2"}`, "?pageToken=2"))
	if known, found, err := store.RemoteTask(t.Context(), "critic", "fresh"); !found || err != nil || known.Payer != "alice" {
		t.Errorf("%+v, %v, %v", known, found, err)
	}
}

// A12: where nobody else has a task, a list passes as it is.
func TestA2AAListOfOne(t *testing.T) {
	t.Parallel()
	const list = `{"tasks":[{"id":"t1","status":{}} , {"id":"t2","status":{}}],"nextPageToken":"2","totalSize":41}`
	a := newA2A(t, "critic", answerWith(http.StatusOK, list))
	store := openStore(t, t.TempDir()+"/bus.db")
	b := busOver(t, store, "", func(c *gateway.Config) { c.A2A.Tasks = store }, a)
	for range 2 {
		if got := b.send(http.MethodGet, "/a2a/critic/rest/tasks", "", asAlice); got.body != list {
			t.Error(got)
		}
	}
}

// A12: what should tell of tasks and cannot be read is not passed on unseen.
func TestA2AWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`[{"id":"task-x"}]`, "\xef\xbb\xbf" + `{"id":"task-x"}`, `{"id":"task-x"`} {
		b := newBus(t, nil, newA2A(t, "critic", answerWith(http.StatusOK, body)))
		for _, path := range []string{"/tasks", "/tasks/other"} {
			if got := b.send(http.MethodGet, "/a2a/critic/rest"+path, "", asAlice); fault(got) != "502 502 AGENT_UNAVAILABLE" || strings.Contains(got.body, "task-x") {
				t.Errorf("%s: %v", path, got)
			}
		}
		if got := b.send(http.MethodGet, "/a2a/critic/rest/custom", "", asAlice); got.body != body {
			t.Error(got)
		}
	}
}

// A12, X34: of an answer that is larger than what is kept too, the task is the
// caller's, or nothing of it is told, and nothing charged.
func TestA2ALargeAnswers(t *testing.T) {
	t.Parallel()
	const most = 1 << 10
	pad := `"artifacts":[{"id":"theirs","parts":[{"text":"` + strings.Repeat("x", 64*most) + `"}]}]`
	const state = `"status":{"state":"TASK_STATE_COMPLETED"}`
	for name, c := range map[string]struct{ task, want, later string }{
		"of nobody yet":    {task: `{"task":{"id":"new","contextId":"c",` + pad + `,` + state + `}}`},
		"of A2A 0.3":       {task: `{"kind":"task","id":"new",` + pad + `,` + state + `}`},
		"a message":        {task: `{"message":{"messageId":"m","role":"ROLE_AGENT",` + pad + `}}`},
		"another's":        {task: `{"task":{"id":"th\u0065irs",` + pad + `,` + state + `}}`, want: "TASK_NOT_FOUND"},
		"another's, named": {task: `{"message":{"messageId":"m","taskId":"theirs",` + pad + `}}`, want: "TASK_NOT_FOUND"},
		"not named yet":    {task: `{"task":{` + pad + `,"id":"new",` + state + `}}`, want: "AGENT_UNAVAILABLE"},
		"named twice":      {task: `{"task":{"id":"new",` + pad + `,"id":"theirs"}}`, later: "cut"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				body := c.task
				if strings.HasPrefix(r.URL.Path, "/rpc") {
					body = `{"jsonrpc":"2.0","id":"r1","result":` + body + `}`
				}
				answerWith(http.StatusOK, body)(w, r)
			})
			store := openStore(t, t.TempDir()+"/bus.db")
			b := busOver(t, store, "", func(cfg *gateway.Config) { cfg.A2A.Tasks, cfg.MaxReply = store, most }, a)
			theirs := agentbus.RemoteTask{Agent: "critic", ID: "theirs", Upstream: a.URL.String(), Payer: "user:somebody", Seen: time.Now()}
			if err := store.SeeRemoteTask(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			for i, req := range [][3]string{
				{"POST", "/a2a/critic", rpc("r1", "SendMessage", say("m"))},
				{"POST", "/a2a/critic/rest/message:send", say("m")},
				{"POST", "/a2a/critic", rpc("r1", "GetTask", `{"id":"alias"}`)},
				{"GET", "/a2a/critic/rest/tasks/alias", ""},
			} {
				run := "r" + strconv.Itoa(i)
				got := b.send(req[0], req[1], req[2], append(turn(run, run+".t0.critic"), asAlice)...)
				switch {
				case c.want != "":
					if !strings.HasSuffix(fault(got), " "+c.want) || strings.Contains(got.body, "xxx") {
						t.Errorf("%v: %.300s", req, got.body)
					}
				case c.later != "":
					if got.err == nil || strings.Contains(got.body, `"theirs"}`) {
						t.Errorf("%v: %v, …%s", req, got.err, got.body[len(got.body)-20:])
					}
				case !strings.Contains(got.body, c.task) || got.err != nil:
					t.Errorf("%v: %v, %.300s", req, got.err, got.body)
				}
				if i < 2 {
					state := agentbus.CallSettled
					if c.want+c.later != "" {
						state = agentbus.CallVoided
					}
					b.one(run, state)
				}
			}
			if _, found, _ := store.RemoteTask(t.Context(), "critic", "new"); found != (c.later != "" || c.want == "" && name != "a message") {
				t.Errorf("the task is remembered: %v", found)
			}
			if got := b.send("POST", "/a2a/critic", rpc("r1", "SendStreamingMessage", say("m9")), asAlice); !strings.HasPrefix(fault(got), "502") && !strings.Contains(got.body, "AGENT_UNAVAILABLE") {
				t.Errorf("a stream: %.300s", got.body)
			}
		})
	}
}

// A12, X34: of a stream that tells of another's task nothing of that event is told,
// however long it is and in however many pieces it comes.
func TestA2AAnothersTaskInAStream(t *testing.T) {
	t.Parallel()
	pieces := func(w http.ResponseWriter, s string) {
		for len(s) > 0 {
			n := min(len(s), 20<<10)
			_, _ = io.WriteString(w, s[:n])
			_ = http.NewResponseController(w).Flush()
			s = s[n:]
		}
	}
	for name, size := range map[string]int{"short": 10, "long": 64 << 10, "too long to be read": a2a.MaxFrame + 64<<10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if size > a2a.MaxFrame && testing.Short() {
				t.Skip("22 MB")
			}
			event := func(rest bool, id, text string) string {
				e := `{"artifactUpdate":{"taskId":"` + id + `","contextId":"c","artifact":{"parts":[{"text":"` + text + `"}]}}}`
				if !rest {
					e = `{"jsonrpc":"2.0","id":"r1","result":` + e + `}`
				}
				return "event: message\ndata: " + e + "\n\n"
			}
			mine, secret := strings.Repeat("m", size), strings.Repeat("z", size)
			a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				rest := !strings.HasPrefix(r.URL.Path, "/rpc")
				pieces(w, ": hello\n\n"+event(rest, "mine", mine)+event(rest, "mine", "more"))
				pieces(w, event(rest, "theirs", secret))
			})
			store := openStore(t, t.TempDir()+"/bus.db")
			b := busOver(t, store, "", func(c *gateway.Config) { c.A2A.Tasks = store }, a)
			theirs := agentbus.RemoteTask{Agent: "critic", ID: "theirs", Upstream: a.URL.String(), Payer: "user:somebody", Seen: time.Now()}
			if err := store.SeeRemoteTask(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			for i, req := range [][3]string{
				{"POST", "/a2a/critic", rpc("r1", "SendStreamingMessage", say("m"))},
				{"POST", "/a2a/critic/rest/message:stream", say("m")},
				{"POST", "/a2a/critic", rpc("r1", "SubscribeToTask", `{"id":"alias"}`)},
				{"GET", "/a2a/critic/rest/tasks/alias:subscribe", ""},
			} {
				run := "r" + strconv.Itoa(i)
				got := b.send(req[0], req[1], req[2], append(turn(run, run+".t0.critic"), asAlice)...)
				told, last, found := strings.Cut(got.body, event(i%2 == 1, "mine", mine)+event(i%2 == 1, "mine", "more"))
				if size < 1<<10 { // all in one piece: nothing of it goes on
					told, last, found = ": hello\n\n", got.body, true
				}
				if told != ": hello\n\n" || !found || strings.Contains(last, "zz") || !strings.Contains(last, "TASK_NOT_FOUND") {
					t.Errorf("%v: %.200s … %.200s", req, got, last)
				}
				if i < 2 {
					b.one(run, agentbus.CallVoided)
				}
			}
		})
	}
}

func a2aBody(r *http.Request) string {
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

// X34: nor does an answer to a message tell of a task that another process of the
// bus has seen, which only the store knows. The call is not charged.
func TestA2AAnothersTaskInTheStore(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", taskOn("x"))
	store := openStore(t, t.TempDir()+"/bus.db")
	b := busOver(t, store, "", func(c *gateway.Config) { c.A2A.Tasks = store }, a)
	theirs := agentbus.RemoteTask{Agent: "critic", ID: "task-x", Upstream: "http://a", Payer: "user:somebody", Seen: time.Now()}
	if err := store.SeeRemoteTask(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	got := b.send(http.MethodPost, "/a2a/critic/rest/message:send", say("m"), append(turn("r", "r.t0.critic"), asBob)...)
	if fault(got) != "404 404 TASK_NOT_FOUND" || strings.Contains(got.body, "ctx-x") {
		t.Error(got)
	}
	if calls := b.calls("r"); len(calls) != 1 || calls[0].State != agentbus.CallVoided || calls[0].Cost != 0 {
		t.Errorf("%+v", calls)
	}
}
