package server_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/server"
)

// TestReplicasShareARate: G8, G6, what a caller may call is counted over all
// replicas; a replica that was told when there will be more refuses until then by
// itself.
func TestReplicasShareARate(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a")
	yaml, store := fmt.Sprintf(twoAgents, a.URL+"/v1", a.URL+"/v1"), stores.Database(t)
	rated := identity.StaticKey{Secret: agentbus.NewCredential("secret-1"), Principal: agentbus.Principal{
		ID: "user-1", Grants: &agentbus.Grants{PerSecond: 0.001, Burst: 5},
	}}
	all := []*server.Server{buildOn(t, store, yaml, rated), buildOn(t, store, yaml, rated), buildOn(t, store, yaml, rated)}
	defer closeAll(t, all...)
	passed, refused := 0, 0
	for i := range 12 {
		switch status, body := askAs(t, all[i%3], "secret-1", "a", agentbus.NewRunID()); {
		case status == http.StatusOK:
			passed++
		case status == http.StatusTooManyRequests && strings.Contains(body, string(agentbus.CodeRateLimited)):
			refused++
		default:
			t.Errorf("%d %s", status, body)
		}
	}
	if passed != 5 || refused != 7 {
		t.Errorf("%d calls passed, %d were refused", passed, refused)
	}
}

// TestReplicasRefuseWhatWasStopped: G14, once a stop is acknowledged nobody
// executes anything of the run, heard of it or not.
func TestReplicasRefuseWhatWasStopped(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a")
	yaml, store := fmt.Sprintf(twoAgents, a.URL+"/v1", a.URL+"/v1"), stores.Database(t)
	one, two := buildOn(t, store, yaml, userKey("secret-1")), buildOn(t, store, yaml, userKey("secret-1"))
	defer closeAll(t, one, two)
	run := agentbus.NewRunID()
	if _, err := one.Stop(t.Context(), run, "ops"); err != nil {
		t.Fatal(err)
	}
	if status, body := askAs(t, two, "secret-1", "a", run); !strings.Contains(body, string(agentbus.CodeRunStopped)) || len(a.headers()) > 0 {
		t.Errorf("%d %s, and %d calls of the agent", status, body, len(a.headers()))
	}
}

// TestReplicasHint: R12, G13, where one replica opened a breaker or left a URL
// out, one failure is enough for that at the others, also at one that comes later.
func TestReplicasHint(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(broken.Close)
	yaml, store := fmt.Sprintf("agents: {a: {kind: openai, urls: [%q, %q], eject: {for: 1h, at_most: 1h}, price: {call: 0.01}}}\n", broken.URL+"/v1", broken.URL+"/v2"), stores.Database(t)
	ops := identity.StaticKey{Secret: agentbus.NewCredential("secret-of-ops"), Principal: agentbus.Principal{ID: "ops", Role: agentbus.PrincipalAdmin}}
	one, two := buildOn(t, store, yaml, userKey("secret-1"), ops), buildOn(t, store, yaml, userKey("secret-1"), ops)
	defer closeAll(t, one, two)
	defer serve(t, one)()
	defer serve(t, two)()
	ejected := func(s *server.Server) bool { return strings.Contains(agentsOf(t, s), `"health":"ejected"`) }
	ask := func(s *server.Server) { askAs(t, s, "secret-1", "a", agentbus.NewRunID()) }
	for range 9 { // one of the two URLs has failed five times, the other four
		ask(one)
	}
	if !ejected(one) || ejected(two) {
		t.Fatalf("after failures at one: %s, at the other %s", agentsOf(t, one), agentsOf(t, two))
	}
	three := buildOn(t, store, yaml, userKey("secret-1"), ops)
	defer closeAll(t, three)
	defer serve(t, three)()
	for _, s := range []*server.Server{two, three} {
		soon(t, "the hint", func() bool { return strings.Contains(agentsOf(t, s), `"failures":4`) })
	}
	for range 2 { // one for each of the URLs
		ask(two)
	}
	if !ejected(two) {
		t.Errorf("after one more failure: %s", agentsOf(t, two))
	}
}

// agentsOf is what the admin API says of the agents.
func agentsOf(t *testing.T, s *server.Server) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/admin/v1/agents", nil)
	r.Header.Set("Authorization", "Bearer secret-of-ops")
	w := httptest.NewRecorder()
	s.AdminHandler().ServeHTTP(w, r)
	return w.Body.String()
}

// TestReplicasTellTheirConfiguration: G30, a replica says so on /readyz when
// others have another configuration in force.
func TestReplicasTellTheirConfiguration(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a")
	yaml, store := fmt.Sprintf(twoAgents, a.URL+"/v1", a.URL+"/v1"), stores.Database(t)
	one := buildOn(t, store, yaml+"listen: 127.0.0.1:4711\n", userKey("secret-1"))
	defer closeAll(t, one)
	two := buildOn(t, store, yaml+"listen: 127.0.0.1:4712\n", userKey("secret-1"))
	three := buildOn(t, store, yaml+"limits: {max_depth: 3}\n", userKey("secret-1"))
	soon(t, "the difference", func() bool {
		return strings.HasPrefix(strings.Join(one.Degraded(), ""), "1 of 2 other replicas have another configuration in force") && len(two.Degraded()) == 1
	})
	closeAll(t, three)
	soon(t, "the end of it", func() bool { return len(one.Degraded()) == 0 && len(two.Degraded()) == 0 })
	closeAll(t, two)
}

// TestReplicasTail: E9, R22, a run that one replica drives is followed live at
// another, which shows each event once and in order, to the last.
func TestReplicasTail(t *testing.T) {
	t.Parallel()
	store := stores.Database(t)
	one, first, closeOne := wopOn(t, store)
	defer closeOne()
	_, second, closeTwo := wopOn(t, store)
	defer closeTwo()
	_, out, _ := call(t, http.MethodPost, first+"/v1/runs", `{"workflowId":"conformance-approval"}`)
	run, _ := out["runId"].(string)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, second+"/v1/runs/"+run+"/events?streamMode=debug", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice-secret-of-the-test")
	r.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	var types, ids []string
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			if types = append(types, kind); kind == agentbus.EventNodeSuspended { // the tail is live from here on
				if status, out, _ := call(t, http.MethodPost, first+"/v1/runs/"+run+"/interrupts/gate", `{"resumeValue":{"action":"accept"}}`); status >= 300 {
					t.Fatalf("%d %v", status, out)
				}
			}
		}
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			ids = append(ids, id)
		}
	}
	var want, positions []string
	for e, err := range one.Store().Events(t.Context(), agentbus.ExecutionID(run), -1) {
		if err != nil {
			t.Fatal(err)
		}
		want, positions = append(want, e.Type), append(positions, strconv.FormatInt(int64(e.Position), 10))
	}
	if diff := cmp.Diff([][]string{want, positions}, [][]string{types, ids}); diff != "" || !agentbus.Terminal(want[len(want)-1]) {
		t.Errorf("the tail (-log +seen):\n%s", diff)
	}
}
