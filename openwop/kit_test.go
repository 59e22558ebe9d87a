//nolint:errcheck // a document without the member that is looked at fails its test
package openwop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/openwop"
	"github.com/agentbus/agentbus/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	planted    = "s3cr3t-of-the-writer"
	callersKey = "k3y-of-alice" // another one of hers
)

// A bus is a host behind a real listener, over a real store.
type bus struct {
	*testing.T

	url   string
	path  string
	store *sqlite.Store
	host  *openwop.Host
	close func()
}

func identify(r *http.Request) (agentbus.Principal, error) {
	switch r.Header.Get("Authorization") {
	case "Bearer alice", "Bearer " + callersKey:
		return agentbus.Principal{ID: "alice"}, nil
	case "Bearer bob":
		return agentbus.Principal{ID: "bob"}, nil
	}
	return agentbus.Principal{}, &agentbus.Error{Code: agentbus.CodeUnauthenticated, Message: "no"}
}

func newBus(t *testing.T, change ...func(*openwop.Config)) *bus {
	t.Helper()
	return openBus(t, filepath.Join(t.TempDir(), "bus.db"), change...)
}

// openBus opens a bus over a store that may have been another's.
func openBus(t *testing.T, path string, change ...func(*openwop.Config)) *bus {
	t.Helper()
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: sqlitetest.Prepare(t, path)})
	if err != nil {
		t.Fatal(err)
	}
	redact := eventlog.NewRedactor(eventlog.Secret{ID: "agents.writer", Value: agentbus.NewCredential(planted)})
	c := openwop.Config{
		Store: store, Version: "test", Owner: "test/" + t.Name(), Identify: identify, Conformance: true, TokenKey: []byte("key"),
		Redact: func() *eventlog.Redactor { return redact },
	}
	for _, f := range change {
		f(&c)
	}
	h, err := openwop.New(c)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	b := &bus{T: t, url: srv.URL, path: path, store: store, host: h}
	closed := false
	b.close = func() {
		if closed {
			return
		}
		closed = true
		h.Close()
		srv.CloseClientConnections()
		srv.Close()
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	}
	t.Cleanup(b.close)
	return b
}

// An object is JSON.
type object = map[string]any

// send sends a request of alice, unless head says otherwise, and returns the answer.
func (b *bus) send(method, path string, body io.Reader, head ...string) *http.Response {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.url+path, body)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice")
	for i := 0; i+1 < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	return res
}

// do sends a request and returns status, JSON and header.
func (b *bus) do(method, path string, body any, head ...string) (int, object, http.Header) {
	b.Helper()
	var in io.Reader
	switch v := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(v)
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		in = bytes.NewReader(raw)
	}
	res := b.send(method, path, in, head...)
	defer func() { _ = res.Body.Close() }()
	if res.Header.Get("X-Request-Id") == "" { // as every answer of a bus
		b.Errorf("%s %s: no x-request-id", method, path)
	}
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		b.Fatal(err)
	}
	var out object
	if err := json.Unmarshal(raw, &out); err != nil && len(raw) > 0 {
		b.Fatalf("%s %s: %d %s", method, path, res.StatusCode, raw)
	}
	return res.StatusCode, out, res.Header
}

// start begins a run and returns its id.
func (b *bus) start(workflow string, more ...object) string {
	b.Helper()
	body := object{"workflowId": workflow}
	for _, m := range more {
		maps.Copy(body, m)
	}
	status, out, _ := b.do(http.MethodPost, "/v1/runs", body)
	if status != http.StatusCreated {
		b.Fatalf("start %s: %d %v", workflow, status, out)
	}
	return out["runId"].(string)
}

// settle waits until the run has ended or waits, and returns its snapshot.
func (b *bus) settle(run string) object {
	b.Helper()
	var snap object
	for ctx, done := context.WithTimeout(b.Context(), time.Minute); ; {
		_, snap, _ = b.do(http.MethodGet, "/v1/runs/"+run, nil)
		switch s := snap["status"].(string); {
		case s == "completed", s == "failed", s == "cancelled", s == "paused", strings.HasPrefix(s, "waiting"):
			done()
			return snap
		}
		if ctx.Err() != nil {
			done()
			b.Fatalf("run %s does not settle: %v", run, snap)
		}
		<-time.After(2 * time.Millisecond) // the snapshot is asked for as clients do
	}
}

// events returns the log of a run.
func (b *bus) events(run string) []object {
	b.Helper()
	_, out, _ := b.do(http.MethodGet, "/v1/runs/"+run+"/events", nil, "Accept", "application/json")
	var events []object
	for _, e := range out["events"].([]any) {
		events = append(events, e.(object))
	}
	return events
}

// typesOf are the types of events, those of prefix.
func typesOf(events []object, prefix string) (types []string) {
	for _, e := range events {
		if t := e["type"].(string); strings.HasPrefix(t, prefix) {
			types = append(types, t)
		}
	}
	return types
}

// first returns the payload of the first event of a type.
func first(events []object, kind string) object {
	for _, e := range events {
		if e["type"] == kind {
			return e["payload"].(object)
		}
	}
	return nil
}
