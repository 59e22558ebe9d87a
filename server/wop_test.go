//nolint:errcheck // a document without the member that is looked at fails its test
package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// wop opens a bus under the conformance profile, and its public listener.
func wop(t *testing.T, path string) (*server.Server, string, func()) {
	t.Helper()
	return wopOn(t, "sqlite:"+sqlitetest.Prepare(t, path))
}

// wopOn is wop on the store at url.
func wopOn(t *testing.T, url string) (*server.Server, string, func()) {
	t.Helper()
	text := "store: {url: \"" + url + "\"}\nkeys: [{id: alice, secret: alice-secret-of-the-test}]\nagents: {echo: {kind: builtin, builtin: echo}}\n"
	c, _, err := config.Parse("test", []byte(text), config.Source{Dev: true, Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Config{Config: c, Version: "test", Conformance: true})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	return s, srv.URL, func() {
		srv.CloseClientConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
	}
}

func call(t *testing.T, method, url, body string, head ...string) (int, map[string]any, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice-secret-of-the-test")
	for i := 0; i+1 < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	_ = json.Unmarshal(raw, &out)
	return res.StatusCode, out, res.Header
}

// E2, E4, E5, E28: the bus serves the wire beside its gateway, to those whom its
// keys know, and stores no key of its configuration.
func TestWireBesideGateway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bus.db")
	_, url, stop := wop(t, path)
	for key, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer alice-secret-of-the-test": 404} {
		if status, out, _ := call(t, http.MethodGet, url+"/v1/runs/run_x", "", "Authorization", key); status != want || out["error"] == nil {
			t.Errorf("%q: %d %v", key, status, out)
		}
	}
	status, doc, _ := call(t, http.MethodGet, url+"/.well-known/openwop", "", "Authorization", "")
	if impl, _ := doc["implementation"].(map[string]any); status != http.StatusOK || impl["name"] != "agentbus" {
		t.Errorf("%d %v", status, doc)
	}
	status, out, _ := call(t, http.MethodPost, url+"/v1/runs", `{"workflowId":"conformance-identity","inputs":{"payload":{"k":"alice-secret-of-the-test"}}}`)
	if status != http.StatusCreated {
		t.Fatal(status, out)
	}
	run := out["runId"].(string)
	soon(t, "the end", func() bool {
		_, snap, _ := call(t, http.MethodGet, url+"/v1/runs/"+run, "")
		return snap["status"] == "completed"
	})
	if status, _, _ := call(t, http.MethodGet, url+"/v1/models", ""); status != http.StatusOK {
		t.Errorf("the gateway beside it: %d", status)
	}
	stop()
	files, _ := filepath.Glob(path + "*")
	for _, f := range files {
		if raw, err := os.ReadFile(f); err != nil || bytes.Contains(raw, []byte("alice-secret")) {
			t.Errorf("%s holds the key: %v", f, err)
		}
	}
}

// R19, R22: what waits is seen in the inbox of the bus and decided there, and the
// workers go on with it; a stream that follows ends with the bus.
func TestWireInterruptsAreTheBusesOwn(t *testing.T) {
	t.Parallel()
	s, url, stop := wop(t, filepath.Join(t.TempDir(), "bus.db"))
	defer stop()
	defer serve(t, s)()
	_, out, _ := call(t, http.MethodPost, url+"/v1/runs", `{"workflowId":"conformance-approval"}`)
	run := out["runId"].(string)
	soon(t, "the wait", func() bool { return len(waiting(t, s)) == 1 })
	i := waiting(t, s)[0]
	if i.Payer != "alice" || i.Ask.Title != "Conformance approval" {
		t.Errorf("%+v", i)
	}
	if _, err := s.Resolve(t.Context(), i.ID, agentbus.Resolution{Decision: agentbus.DecisionGranted, Text: "accept", By: "zoë"}); err != nil {
		t.Fatal(err)
	}
	soon(t, "the end", func() bool {
		_, snap, _ := call(t, http.MethodGet, url+"/v1/runs/"+run, "")
		return snap["status"] == "completed"
	})
	_, out, _ = call(t, http.MethodPost, url+"/v1/runs", `{"workflowId":"conformance-cancellable"}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/runs/"+out["runId"].(string)+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice-secret-of-the-test")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // the bus ends it
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "id: 0\n" {
		t.Errorf("%q %v", line, err)
	}
}

// E4, R19: the run of a workflow that was stopped when nobody drove it is cancelled by
// a bus that serves its store.
func TestWireStoppedOrphansEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bus.db")
	_, url, stop := wop(t, path)
	_, out, _ := call(t, http.MethodPost, url+"/v1/runs", `{"workflowId":"conformance-cancellable"}`)
	run := out["runId"].(string)
	stop()
	s, url, stop := wop(t, path)
	defer stop()
	e := stored(t, s, agentbus.RunID(run))
	if _, err := s.Store().Open(t.Context(), e, agentbus.Claim{TakeOver: e.Lease.Epoch}); err != nil { // its driver's process is this one
		t.Fatal(err)
	}
	if err := s.Store().StopRun(t.Context(), e.Run, "ops", "enough", time.Now()); err != nil {
		t.Fatal(err)
	}
	defer serve(t, s)()
	soon(t, "the end", func() bool {
		_, snap, _ := call(t, http.MethodGet, url+"/v1/runs/"+run, "")
		return snap["status"] == "cancelled"
	})
}
