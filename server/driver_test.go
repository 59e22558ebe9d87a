package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/agentbustest"
)

// U5, U11, R16, R23: an operator lets a paused run go on with another budget,
// forks it and replays it; who did it stands with the run.
func TestOperatorsGoOnWithRuns(t *testing.T) {
	t.Parallel()
	b := agentbustest.New(t, agentbustest.Config{
		Agents:     map[string]agentbustest.Agent{"a": {}, "b": {}},
		Principals: []agentbus.Principal{{ID: "ops", Role: agentbus.PrincipalAdmin}},
		YAML: `
agents: {a: {price: {call: 0.01}}, b: {price: {call: 0.01}}}
conversations: {talk: {participants: [{agent: a}, {agent: b}], max_turns: 4, budget_usd: 0.02}}
` + sealing(t),
	})
	post := func(path string, status int) (answer map[string]any) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1"+path, http.NoBody)
		r.Header.Set("Authorization", b.Key("ops").Reveal())
		w := httptest.NewRecorder()
		b.Server().AdminHandler().ServeHTTP(w, r)
		if w.Code != status {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	run := b.Run("talk", "hello").Run
	at := "/admin/v1/runs/" + url.PathEscape(string(run))
	if e := stored(t, b.Server(), run); e.State != agentbus.RunPaused || e.Turns != 2 {
		t.Fatalf("it is %s after %d turns", e.State, e.Turns)
	}
	post(at+"/resume?max_usd=1", http.StatusOK)
	soon(t, "the end of the run", func() bool { return stored(t, b.Server(), run).State == agentbus.RunDone })
	if e := stored(t, b.Server(), run); e.Turns != 4 {
		t.Errorf("%d turns are done", e.Turns)
	}
	post(at+"/resume", http.StatusConflict)
	if v := post(at+"/replay", http.StatusOK); v["identical"] != true {
		t.Errorf("replayed: %v", v)
	}
	forked, _ := post(at+"/fork?turn=3", http.StatusCreated)["run"].(string)
	soon(t, "the end of the fork", func() bool { return stored(t, b.Server(), agentbus.RunID(forked)).State != agentbus.RunRunning })
	if calls := b.Calls(agentbus.RunID(forked)); len(calls) != 1 || calls[0].TurnKey.ID.Index(agentbus.RunID(forked)) != 3 {
		t.Errorf("the fork made %+v", calls)
	}
	post(at+"/fork?turn=9", http.StatusBadRequest)
	post("/admin/v1/runs/run_none/resume", http.StatusNotFound)
	done, err := b.Server().Store().Actions(t.Context(), agentbus.ActionQuery{Run: run, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, a := range done {
		detail, _, _ := strings.Cut(a.Detail, ",") // how many events there were is another test's
		told = append(told, a.By+" "+a.Kind+" "+detail+" "+string(a.Code))
	}
	want := "ops run.fork at turn 9 invalid_request, ops run.fork at turn 3 as " + forked + " , ops run.replay as recorded: 4 turns , ops run.resume  run_conflict, ops run.resume at most $1.000000 "
	if got := strings.Join(told, ", "); got != want {
		t.Errorf("what operators did is %q, want %q", got, want)
	}
}
