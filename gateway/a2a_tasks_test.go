package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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

// A15: what only reads is sent again when the connection breaks; nothing else
// is, once bytes were sent.
func TestA2ARetries(t *testing.T) {
	t.Parallel()
	a := newRawAgent(t, "critic", func(c net.Conn, r *http.Request) { /* hangs up */ })
	a.Target = target(t, "critic", strings.TrimSuffix(a.URL.String(), "/v1"))
	a.A2A = &gateway.A2AAgent{}
	b := newBus(t, nil, a)
	for method, want := range map[string]int{"GetTask": 2, "SendMessage": 1, "CancelTask": 1} {
		for len(a.heard) > 0 {
			<-a.heard
		}
		if got := b.send(http.MethodPost, "/a2a/critic", rpc("r1", method, `{"id":"t","message":{}}`), asAlice); fault(got) != "502 -32000 AGENT_UNAVAILABLE" {
			t.Errorf("%s: %v", method, got)
		}
		tries := 0
		for len(a.heard) > 0 {
			if h := <-a.heard; h.method == http.MethodPost {
				tries++
			}
		}
		if tries != want {
			t.Errorf("%s was tried %d times, want %d", method, tries, want)
		}
	}
}

// A10, X37: the card names this bus, and nothing of the agent's.
func TestA2ACard(t *testing.T) {
	t.Parallel()
	a, old := newA2A(t, "critic", nil), newAgent(t, "old", nil)
	old.Target = target(t, "old", strings.TrimSuffix(old.URL.String(), "/v1"))
	old.A2A = &gateway.A2AAgent{}
	host := a.URL.Host
	b := newBus(t, func(c *gateway.Config) { c.A2A.DefaultAgent = "critic" }, a, old)
	for _, path := range []string{"/a2a/critic/.well-known/agent-card.json", "/a2a/critic/.well-known/agent-card.json/", "/.well-known/agent-card.json"} {
		got := b.send(http.MethodGet, path, "")
		tag := got.header.Get("Etag")
		if got.status != http.StatusOK || strings.Contains(got.body, host) || gjson.Get(got.body, "signatures").Exists() || tag != a2a.ETag([]byte(got.body)) {
			t.Errorf("%s: %v", path, got)
		}
		if urls := gjson.Get(got.body, "supportedInterfaces.#.url").Raw; urls != `["`+b.url+`/a2a/critic","`+b.url+`/a2a/critic/rest"]` || got.header.Get("Cache-Control") != "public, max-age=300" {
			t.Errorf("%s: %s, %v", path, urls, got.header)
		}
		if again := b.send(http.MethodGet, path, "", "If-None-Match: "+tag); again.status != http.StatusNotModified || again.body != "" {
			t.Errorf("%s: %v", path, again)
		}
		if own := b.send(http.MethodGet, path, "", asAlice); own.header.Get("Cache-Control") != "private, max-age=300" {
			t.Error(own.header)
		}
	}
	if got := b.send(http.MethodGet, "/a2a/old/.well-known/agent-card.json", ""); got.status != http.StatusBadGateway {
		t.Error(got) // it answers with a chat
	}
	if got := b.send(http.MethodGet, "/a2a/nobody/.well-known/agent-card.json", ""); got.status != http.StatusNotFound {
		t.Error(got)
	}
	none := newBus(t, nil, a)
	if got := none.send(http.MethodGet, "/.well-known/agent-card.json", ""); got.status != http.StatusNotFound || gjson.Get(got.body, "error.details.0.metadata.rule").Str != "A3" {
		t.Error(got)
	}
}

// A10: what the card names as base: the configured URL, or the request, or what
// a trusted proxy says, and nobody else.
func TestA2ABase(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", nil)
	forwarded := []string{"X-Forwarded-Proto: https", "X-Forwarded-Host: evil.example, bus.example.com"}
	for want, change := range map[string]func(*gateway.Config){
		"http://127.0.0.1":            nil,
		"https://public.example.com/": func(c *gateway.Config) { c.A2A.PublicURL = "https://public.example.com/" },
		"https://bus.example.com/":    func(c *gateway.Config) { c.A2A.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} },
	} {
		got := newBus(t, change, a).send(http.MethodGet, "/a2a/critic/.well-known/agent-card.json", "", forwarded...)
		if u := gjson.Get(got.body, "supportedInterfaces.0.url").Str; !strings.HasPrefix(u, want) {
			t.Errorf("%s, want %s", u, want)
		}
	}
}

// A10: the extended card too, over both bindings.
func TestA2AExtendedCard(t *testing.T) {
	t.Parallel()
	var base string
	a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		card := `{"name":"x","supportedInterfaces":[{"url":"` + base + `/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"signatures":[{}],"note":"see ` + base + `/x"}`
		if r.Method == http.MethodPost {
			card = `{"jsonrpc":"2.0","id":"r1","result":` + card + `}`
		}
		answerWith(http.StatusOK, card)(w, r)
	})
	base = a.URL.String()
	b := newBus(t, nil, a)
	for path, got := range map[string]answer{
		"result.": b.send(http.MethodPost, "/a2a/critic", rpc("r1", "GetExtendedAgentCard", "{}"), asAlice),
		"":        b.send(http.MethodGet, "/a2a/critic/rest/extendedAgentCard", "", asAlice),
	} {
		if gjson.Get(got.body, path+"supportedInterfaces.0.url").Str != b.url+"/a2a/critic" || strings.Contains(got.body, a.URL.Host) || strings.Contains(got.body, "signatures") ||
			got.header.Get("Etag") != a2a.ETag([]byte(got.body)) || !strings.HasPrefix(got.header.Get("Cache-Control"), "private") {
			t.Errorf("%v %v", got, got.header)
		}
	}
	if got := b.send(http.MethodGet, "/a2a/critic/rest/extendedAgentCard", ""); got.status != http.StatusUnauthorized {
		t.Error(got)
	}
}

// A8: an agent that is told a version when callers name none.
func TestA2ADefaultVersion(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	a.A2A.DefaultVersion = "1.0"
	b := newBus(t, nil, a)
	for _, c := range []struct {
		path, want string
		headers    []string
	}{
		{"/a2a/critic", "1.0", nil}, {"/a2a/critic", "0.3", []string{"a2a-version: 0.3"}}, {"/a2a/critic?A2A-Version=0.3", "", nil},
	} {
		_ = b.send(http.MethodPost, c.path, sendHi, append(c.headers, asAlice)...)
		if got := strings.Join(a.next(t).header["A2a-Version"], "|"); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.path, c.headers, got, c.want)
		}
	}
}

// A17: where webhooks may pass, their URL is judged first.
func TestA2APushPassthrough(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	a.A2A.Push = true
	b := newBus(t, func(c *gateway.Config) {
		c.A2A.Webhook = func(_ context.Context, u string) error {
			if strings.HasPrefix(u, "https://good/") {
				return nil
			}
			return &agentbus.Error{Code: agentbus.CodeForbidden, Message: "not there"}
		}
	}, a)
	hook := func(u string) answer {
		return b.send(http.MethodPost, "/a2a/critic", rpc("r1", "CreateTaskPushNotificationConfig", `{"taskId":"t","url":"`+u+`"}`), asAlice)
	}
	if got := hook("https://good/"); got.status != http.StatusOK || a.executions() == 0 {
		t.Error(got)
	}
	if got := hook("http://169.254.169.254/"); fault(got) != "403 -32000 FORBIDDEN" {
		t.Error(got)
	}
	if card := b.send(http.MethodGet, "/a2a/critic/.well-known/agent-card.json", ""); !gjson.Get(card.body, "capabilities.pushNotifications").Bool() {
		t.Error(card)
	}
}

// A3: agents of other dialects are served by their face, behind the stages.
func TestA2AFace(t *testing.T) {
	t.Parallel()
	asked := make(chan *a2a.Request, 8)
	face := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, _ := a2a.FromContext(r.Context())
		asked <- q
		if r.Header.Get("X-Panic") != "" {
			panic(errors.New("broken"))
		}
		w.WriteHeader(http.StatusTeapot)
	})
	b := newBus(t, func(c *gateway.Config) { c.Face = face }, newAgent(t, "chat", nil))
	got := b.send(http.MethodPost, "/a2a/agent%2Fchat", sendHi, asAlice, "x-tangle-runid: run1", "x-tangle-forwarded-depth: 1")
	q := <-asked
	if got.status != http.StatusTeapot || q.Agent != "chat" || q.Payer != "alice" || q.Lineage.Depth != 2 || q.Lineage.Run != "run1" || q.Base != b.url+"/a2a/chat" {
		t.Errorf("%v %+v", got, q)
	}
	b.await("run1", func(c []agentbus.CallRecord) bool {
		return len(c) == 1 && c[0].State == agentbus.CallPassed && c[0].Status == http.StatusTeapot
	})
	if got := b.send(http.MethodGet, "/a2a/chat/.well-known/agent-card.json", ""); got.status != http.StatusTeapot || (<-asked).Payer != "" {
		t.Error(got)
	}
	if got := b.send(http.MethodPost, "/a2a/chat", sendHi, asAlice, "X-Panic: 1"); fault(got) != "500 -32603 INTERNAL" {
		t.Error(got)
	}
	if got := b.send(http.MethodPost, "/a2a/chat", "[]", asAlice); fault(got) != "200 -32600 INVALID_REQUEST" {
		t.Error(got)
	}
}

// The gateway's Edit sees each request, and may refuse it.
func TestA2AEdit(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	b := newBus(t, func(c *gateway.Config) {
		c.A2A.Edit = func(_ context.Context, r *a2a.Request, call *a2a.Call, body []byte) ([]byte, error) {
			if call.MessageID == "bad" {
				return nil, a2a.Standard(a2a.CodeInvalidParams, "", &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "bad " + r.Agent})
			}
			return a2a.Set(body, []byte(`{"hop":1}`), call.MetadataPath("mentionable", "agent_chain")...)
		}
	}, a)
	if got := b.send(http.MethodPost, "/a2a/critic", rpc("r1", "SendMessage", say("bad")), asAlice); fault(got) != "200 -32602 INVALID_PARAMS" || a.executions() != 0 {
		t.Error(got)
	}
	if got := b.send(http.MethodPost, "/a2a/critic", sendHi, asAlice); got.status != http.StatusOK {
		t.Error(got)
	}
	if h := a.next(t); gjson.Get(h.body, "params.message.metadata.mentionable.agent_chain.hop").Int() != 1 {
		t.Error(h.body)
	}
}

// G14: a caller that leaves a stream finds it whole afterwards; the task is
// never cancelled for it.
func TestA2ALeaving(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(rpcWorking))
		_ = http.NewResponseController(w).Flush()
		<-left
		_, _ = w.Write([]byte(rpcChunk + rpcEnd))
	})
	b := newBus(t, nil, a)
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/a2a/critic", strings.NewReader(rpc("r1", "SendStreamingMessage", say("m1"))))
	same := append(turn("run1", "run1.t0.critic"), asAlice)
	r.Header = headerOf(same)
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = resp.Body.Close()
	close(left)
	b.one("run1", agentbus.CallSettled)
	if got := b.send(http.MethodPost, "/a2a/critic", rpc("r2", "SendStreamingMessage", say("m1")), same...); got.body != strings.ReplaceAll(rpcStream, `"r1"`, `"r2"`) {
		t.Error(got)
	}
	if a.executions() != 2 {
		t.Errorf("%d requests, one of them for the card", a.executions())
	}
}

// The kill switch ends a stream of A2A, and everything that only passes (G14).
func TestA2AStop(t *testing.T) {
	t.Parallel()
	a := newA2A(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(rpcWorking))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	b := newBus(t, nil, a)
	for _, method := range []string{"SendStreamingMessage", "SubscribeToTask"} {
		resp, err := b.open(http.MethodPost, "/a2a/critic", rpc("r1", method, say("m1")), asAlice, "x-tangle-runid: run-"+method)
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Stop(agentbus.RunID("run-" + method)); n != 1 {
			t.Errorf("%s: %d calls ended", method, n)
		}
		var read strings.Builder
		buf := make([]byte, 4096)
		for err == nil {
			var n int
			n, err = resp.Body.Read(buf)
			read.Write(buf[:n])
		}
		_ = resp.Body.Close()
		if !strings.Contains(read.String(), `"code":"run_stopped"`) {
			t.Errorf("%s: %s", method, read.String())
		}
	}
}
