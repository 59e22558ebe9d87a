package admin_test

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
)

// A browser is somebody who signed in to the pages.
type browser struct {
	*bus
	cookie, csrf string
}

// visit signs in with the key of an admin.
func (b *bus) visit() *browser {
	b.t.Helper()
	s := &browser{bus: b, cookie: b.signIn(adminKey)}
	s.csrf = s.page("/console/agents").csrf()
	return s
}

// page reads a page.
func (s *browser) page(path string) answer {
	s.t.Helper()
	return s.request(http.MethodGet, path, "", "", "Cookie", s.cookie)
}

// post sends a form, with the token of the session.
func (s *browser) post(path string, fields url.Values) answer {
	s.t.Helper()
	fields.Set("csrf", s.csrf)
	return s.form(path, s.cookie, fields)
}

// shows fails the test unless a page has all of these, and none of those behind
// "not".
func (a answer) shows(t *testing.T, what string, texts ...string) {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("%s: %d %s", what, a.status, a.body)
	}
	not := false
	for _, text := range texts {
		if text == "not" {
			not = true
			continue
		}
		if strings.Contains(a.body, text) == not {
			t.Errorf("%s: %q stands there: %v", what, text, !not)
		}
	}
}

// U12 to U16: each screen of an empty bus says what to type next, and has the
// strip of health with the fault of the configuration and its line.
func TestScreensOfAnEmptyBus(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *admin.Config) { c.Agents = &directory{} })
	for path, texts := range map[string][]string{
		"/console/graph": {"Nobody called anybody", "agentbus call"}, "/console/payers": {"agentbus keys create"},
		"/console/agents": {"agentbus init"}, "/console/inbox": {"Nothing waits"},
	} {
		a := b.request(http.MethodGet, path, adminKey, "")
		a.shows(t, path, append(texts, "commit <b>0.5 ms, p99 2.0 ms</b>", "live calls <b>0</b>", "version <b>1.2.3</b>", "line 12, agents.critic.url: is no URL", "replicas <b>1</b>", "not", "style=")...)
	}
	for _, path := range []string{"/console/payers/none", "/console/agents/none"} {
		if a := b.request(http.MethodGet, path, adminKey, ""); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// U12, U13, U14: what the read models find stands on the screens.
func TestScreensOfAFilledBus(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	b.hop("", "researcher", 0, -1, "forwarded_authorization_ignored")
	b.hop("researcher", "critic", 1, 0)
	b.refuse("critic", 4, "", agentbus.CodeDepthExceeded) // now, as hops are: screens look back a day
	s := b.visit()
	s.page("/console/graph?run=run_g").shows(t, "graph", `<svg width=`, `class="node`, "app → researcher: 1 call,", "carries the payer’s credential", `href="/console/runs?agent=critic&amp;run=run_g"`,
		`href="/console/runs?agent=researcher&amp;payer=alice&amp;run=run_g"`, `href="/console/runs?payer=alice&amp;run=run_g"`)
	s.page("/console/payers").shows(t, "payers", `href="/console/payers/alice"`, "$3.00", "reserved", "of <span", "format=csv", "not", "not known")
	s.page("/console/payers/alice").shows(t, "payer", "Ledger head", "By agent", "By run", "By day", "strict: never overshot", "Reserved for over a minute", "this process")
	s.page("/console/agents").shows(t, "agents", "breaker open", "ejected", "researcher", "bridge_depth_exceeded", "not", "drained")
	s.page("/console/agents/researcher").shows(t, "agent", "http://127.0.0.1:9/v1", "its own key", "A million tokens in", "of these from a cache</dt><dd>the same<", "Probe now", "Drain this agent")
	s.page("/console/inbox").shows(t, "inbox", "forwarded credential ignored", "Nothing waits")
	s.page("/console/ledger/export?format=csv").shows(t, "export", "payer,seq,kind", "alice,1,charge")
}

// U5, U13, U14: verify, probe, drain and enable are forms with the token of the
// session, and the screen shows who did it.
func TestActionsOnScreens(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	s := b.visit()
	without := s.form("/console/agents/critic/drain", s.cookie, url.Values{})
	if without.status != http.StatusForbidden {
		t.Errorf("a form of nobody's session: %d", without.status)
	}
	if a := b.get("/console/agents/critic/drain"); a.status != http.StatusMethodNotAllowed && a.status != http.StatusNotFound {
		t.Errorf("GET drains: %d", a.status)
	}
	s.post("/console/ledger/verify", url.Values{}).shows(t, "verify", "in order", "4 entries of 2 payers")
	s.post("/console/ledger/verify", url.Values{"payer": {"alice"}}).shows(t, "verify one", "in order", "Ledger head")
	s.post("/console/agents/researcher/probe", url.Values{}).shows(t, "probe", "does not answer", "connection refused")
	s.post("/console/agents/critic/probe", url.Values{}).shows(t, "probe of a local agent", "there is nothing to reach")
	if a := s.post("/console/agents/critic/drain", url.Values{}); a.status != http.StatusSeeOther {
		t.Errorf("drain: %d %s", a.status, a.body)
	}
	s.page("/console/agents/critic").shows(t, "drained", "ops took this agent out", "Enable", "agent.drain")
	if a := s.post("/console/agents/critic/enable", url.Values{}); a.status != http.StatusSeeOther {
		t.Errorf("enable: %d %s", a.status, a.body)
	}
	s.page("/console/agents/critic").shows(t, "enabled", "agent.enable", "breaker open", "not", "took this agent out")
}

// U15: what waits is shown with who asks, what and until when; it is decided
// once, and then who decided stands there. What agents say is text (U1).
func TestInboxScreen(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	granted, denied := b.park("run_a", "alice"), b.park("run_z", "<script>zoe</script>")
	s := b.visit()
	s.page("/console/inbox").shows(t, "open", "2 waiting", "payment", `<b class="name">panel</b>`, `<b class="name">shop</b>`, "it is worth it", "then it counts as denied", "Approve once", "Deny",
		`value="yes" checked`, `Inbox<span data-part="asks"> <span class="depth">2</span>`, "not", "<script>zoe", "s3cret", "t3cret")
	if a := s.post("/console/inbox/"+string(granted), url.Values{"decision": {"granted"}, "text": {strings.Repeat("é", 48<<10)}}); a.status != http.StatusRequestEntityTooLarge { // of its session, and says what is wrong
		t.Errorf("an answer that is too long: %d %s", a.status, a.body)
	}
	if a := s.post("/console/inbox/"+string(granted), url.Values{"decision": {"granted"}, "text": {"yes"}}); a.status != http.StatusSeeOther {
		t.Errorf("approve: %d %s", a.status, a.body)
	}
	if a := s.post("/console/inbox/"+string(denied), url.Values{"decision": {"denied"}, "text": {"too dear"}}); a.status != http.StatusSeeOther {
		t.Errorf("deny: %d %s", a.status, a.body)
	}
	if a := s.post("/console/inbox/"+string(denied), url.Values{"decision": {"granted"}, "text": {"yes"}}); a.status != http.StatusConflict {
		t.Errorf("decided twice: %d", a.status)
	}
	s.page("/console/inbox?chosen="+string(denied)).shows(t, "decided", "Nothing waits", "granted", "denied", "“too dear”", ">ops<", "interrupt.resolve", `class="chosen"`)
	if got, _, err := b.store.Interrupt(t.Context(), granted); err != nil || got.Resolution == nil || got.Resolution.Decision != agentbus.DecisionGranted || got.Resolution.By != "ops" {
		t.Errorf("granted: %+v, %v", got.Resolution, err)
	}
}

// U15: the agents in whose calls a run is driven stand before those that ask in it;
// one that only forwarded a turn too, one that was asked in vain before does not.
func TestWhoAsksAcrossCalls(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	call := func(agent string, at agentbus.TurnKey, depth int) agentbus.TurnKey {
		at.Payer, at.Agent, at.Run = "alice", agent, "run_g"
		_, err := b.store.Reserve(t.Context(), agentbus.Reservation{Key: at.Hash(), Call: agentbus.CallRecord{TurnKey: at, RequestID: "req", Caller: "app", Depth: depth, Owner: "host/1/2", Began: began}})
		b.must(err)
		return at
	}
	root := call("router", agentbus.TurnKey{ID: "run_g.t0.root"}, 0)
	call("planner", agentbus.TurnKey{ID: "run_g.t0.root"}, 1) // the same turn, forwarded
	served := agentbus.TurnKey{Path: root.PathBelow(), Parent: root.ID, ID: "run_g.t0.shop"}
	call("deaf", served, 2)
	call("mall", served, 2)
	call("other", agentbus.TurnKey{Path: "00112233aabbccdd", Parent: "run_g.t9.x", ID: "run_g.t0.shop"}, 2) // another turn of the same id
	e, err := b.store.Open(t.Context(), agentbus.Execution{
		ID: "run_nested", Run: "run_g", Conversation: "mall", Payer: "alice", Path: served.Path, Parent: served.ID, Depth: 3, Began: began,
	}, agentbus.Claim{Owner: "host/1/2", TTL: time.Hour})
	b.must(err)
	id := b.asks(e)
	s := b.visit()
	const way = `<b class="name">router</b> <span class="soft">›</span> <b class="name">planner</b> <span class="soft">›</span> <b class="name">mall</b> <span class="soft">›</span> <b class="name">panel</b> <span class="soft">›</span> <b class="name">shop</b>`
	s.page("/console/inbox").shows(t, "open", way)
	if a := s.post("/console/inbox/"+string(id), url.Values{"decision": {"denied"}}); a.status != http.StatusSeeOther {
		t.Errorf("deny: %d %s", a.status, a.body)
	}
	s.page("/console/inbox").shows(t, "decided", "router › planner › mall › panel › shop")
	if got := b.get("/admin/v1/interrupts/" + string(id)).body; !strings.Contains(got, `"way":["router","planner","mall","panel","shop"]`) {
		t.Errorf("the API says %s", got)
	}
}

// U4: who follows is told when something changes, with the version as its id, and
// who comes back with an older one is told at once.
func TestLive(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	for _, path := range []string{"/admin/v1/live/runs", "/admin/v1/live/calls", "/console/live/agents", "/console/live/inbox"} {
		id := b.changed(path, "")
		if id == "" || b.changed(path, "another") != id {
			t.Errorf("%s: who knows nothing, or something else, is not told version %q", path, id)
		}
	}
	id := b.changed("/admin/v1/live/calls", "")
	told := make(chan string, 1)
	go func() { told <- b.changed("/admin/v1/live/calls", id) }()
	b.fill()
	if now := <-told; now == "" || now == id {
		t.Errorf("after a call began: version %q, before it %q", now, id)
	}
}

// changed follows until it is told of a change, and returns its id.
func (b *bus) changed(path, last string) (id string) {
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, http.NoBody)
	if err != nil {
		return ""
	}
	r.Header.Set("Authorization", "Bearer "+adminKey)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Last-Event-ID", last)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(r)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			return id
		}
	}
	return ""
}

// The API tells a program which route lists what there is; a page has links, and
// names no routes.
func TestPagesNameNoRoutes(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	v := b.visit()
	for page, route := range map[string]string{"/console/runs/run_none": "/admin/v1/runs", "/console/agents/none": "/admin/v1/agents", "/console/payers/none": "/admin/v1/payers"} {
		asked := strings.Replace(page, "/console", "/admin/v1", 1)
		if got := b.get(asked); got.status != http.StatusNotFound || !strings.Contains(got.body, `"see GET `+route+`"`) {
			t.Errorf("%s: %d %s", asked, got.status, got.body)
		}
		if got := v.page(page); got.status != http.StatusNotFound || strings.Contains(got.body, "GET /") || !strings.Contains(got.body, "Nothing is here") {
			t.Errorf("%s: %d %s", page, got.status, got.body)
		}
	}
}
