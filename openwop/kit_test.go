//nolint:errcheck // a document without the member that is looked at fails its test
package openwop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/openwop"
	"github.com/agentbus/agentbus/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const planted = "s3cr3t-of-the-writer"

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
	case "Bearer alice":
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
	r, err := http.NewRequestWithContext(b.Context(), method, b.url+path, in)
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
	defer func() { _ = res.Body.Close() }()
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

// schemas are those of the wire, where they are.
type schemas struct {
	mu     sync.Mutex // a compiler is for one at a time
	c, own *jsonschema.Compiler
}

func (s *schemas) compile(c *jsonschema.Compiler, name string) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.Compile(name)
}

const base = "https://openwop.dev/spec/v1/"

func wire(t *testing.T) *schemas {
	t.Helper()
	dir := os.Getenv("OPENWOP_SCHEMAS")
	for _, d := range []string{"../../shared/schemas/openwop", "../shared/schemas/openwop"} {
		if _, err := os.Stat(d); dir == "" && err == nil {
			dir = d
		}
	}
	own := jsonschema.NewCompiler()
	own.AssertFormat()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openwop.EventSchema()))
	if err := errors.Join(err, own.AddResource("events", doc)); err != nil {
		t.Fatal(err)
	}
	if dir == "" {
		t.Log("the schemas of the wire are not in ../shared/schemas/openwop: events are held to our own")
		return &schemas{own: own}
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseRegexpEngine(readPattern)
	files, err := fs.Glob(os.DirFS(dir), "*.schema.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no schemas", err)
	}
	for _, f := range files {
		file, err := os.Open(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(file)
		if err := errors.Join(err, file.Close(), c.AddResource(base+f, doc)); err != nil {
			t.Fatal(f, err)
		}
	}
	return &schemas{c: c, own: own}
}

func (s *schemas) check(t *testing.T, schema string, v any) {
	t.Helper()
	if s.c == nil {
		return
	}
	compiled, err := s.compile(s.c, base+schema)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	if err := compiled.Validate(v); err != nil {
		raw, _ := json.Marshal(v)
		t.Errorf("%s: %v\n%s", schema, err, raw)
	}
}

// closed are payloads that have a schema of their own beside the loose one.
var closed = map[string]string{
	"conversation.opened": "conversation-event.schema.json", "conversation.exchanged": "conversation-event.schema.json",
	"conversation.closed": "conversation-event.schema.json", "runOrchestrator.decided": "run-orchestrator-decided-event.schema.json",
	"interrupt.requested": "suspend-request.schema.json", "channel.written": "channel-written-payload.schema.json",
}

// events checks every event of a log, and what must hold of all logs.
func (s *schemas) events(t *testing.T, events []object) {
	t.Helper()
	seen := map[any]bool{}
	calls := map[any]object{}
	for i, e := range events {
		s.check(t, "run-event.schema.json", any(e))
		kind := e["type"].(string)
		ours, err := s.compile(s.own, "events")
		if err != nil {
			t.Fatal(err)
		}
		if err := ours.Validate(any(e)); err != nil {
			raw, _ := json.Marshal(e)
			t.Errorf("our own schema: %v\n%s", err, raw)
		}
		s.payload(t, kind, e)
		if closed[kind] != "" {
			s.check(t, closed[kind], e["payload"])
		}
		if e["sequence"] != float64(i) || seen[e["eventId"]] { // E9
			t.Errorf("event %d has sequence %v and id %v", i, e["sequence"], e["eventId"])
		}
		seen[e["eventId"]] = true
		if terminal := agentbus.Terminal(kind); terminal != (i == len(events)-1) && (terminal || endedOf(events)) { // E10
			t.Errorf("event %d of %d is %s", i, len(events), kind)
		}
		if node, has := e["nodeId"]; has && node == nil { // E74
			t.Errorf("nodeId of event %d is null", i)
		}
		if kind == "agent.toolCalled" {
			calls[e["payload"].(object)["callId"]] = e
		}
		if p, _ := e["payload"].(object); kind == "agent.toolReturned" && p["status"] != "forbidden" {
			if call := calls[p["callId"]]; call == nil || e["causationId"] != call["eventId"] { // E24
				t.Errorf("toolReturned %d is caused by %v", i, e["causationId"])
			}
		}
	}
	if len(events) == 0 || events[0]["type"] != "run.started" {
		t.Error("the first event is not run.started")
	}
}

func endedOf(events []object) bool {
	for _, e := range events {
		if agentbus.Terminal(e["type"].(string)) {
			return true
		}
	}
	return false
}

// camel is the name of the schema of a type.
func camel(kind string) string {
	var b strings.Builder
	for i, part := range strings.FieldsFunc(kind, func(r rune) bool { return strings.ContainsRune(".-_", r) }) {
		if i > 0 {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		b.WriteString(part)
	}
	return b.String()
}

// A pattern is a regular expression, which Go reads but for a look-ahead at its
// beginning: none of that, and then the rest.
type pattern struct{ not, is *regexp.Regexp }

func readPattern(s string) (jsonschema.Regexp, error) {
	p := pattern{}
	if rest, ahead := strings.CutPrefix(s, "^(?!"); ahead {
		depth := 1
		i := 0
		for ; depth > 0; i++ {
			switch rest[i] {
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		p.not, s = regexp.MustCompile("^(?:"+rest[:i-1]+")"), "^"+rest[i:]
	}
	var err error
	p.is, err = regexp.Compile(s)
	return p, err
}

func (p pattern) MatchString(s string) bool {
	return p.is.MatchString(s) && (p.not == nil || !p.not.MatchString(s))
}

func (p pattern) String() string { return p.is.String() }

// payload holds a payload to the schema of its type.
func (s *schemas) payload(t *testing.T, kind string, e object) {
	t.Helper()
	if s.c == nil {
		return
	}
	compiled, err := s.compile(s.c, base+"run-event-payloads.schema.json#/$defs/"+camel(kind))
	if err != nil {
		if !strings.HasPrefix(kind, "agentbus.") {
			t.Errorf("%s has no schema", kind)
		}
		return
	}
	if err := compiled.Validate(e["payload"]); err != nil {
		raw, _ := json.Marshal(e)
		t.Errorf("%s: %v\n%s", kind, err, raw)
	}
}
