// Package woptest holds events to the schemas of the wire, where they are at hand, and
// to our own, and logs to what must hold of each (E1, E9, E10, E24).
package woptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/openwop"
)

// A T is told what is wrong. Every *testing.T is one.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Schemas are those of the wire, where they are, and our own. They are safe for
// concurrent use.
type Schemas struct {
	mu       sync.Mutex           // a compiler is for one at a time
	wire     *jsonschema.Compiler // nil: they are not here
	ours     *jsonschema.Schema
	compiled map[string]*jsonschema.Schema // by name; nil: there is none of that name
}

const base = "https://openwop.dev/spec/v1/"

// Load returns the schemas: those of the wire from the folder that OPENWOP_SCHEMAS
// names, else from shared/schemas/openwop beside a folder around the test's. They
// are read once in a process.
func Load(t T) *Schemas {
	t.Helper()
	s, err := load()
	if err != nil {
		t.Fatalf("woptest: %v", err)
	}
	return s
}

var load = sync.OnceValues(func() (*Schemas, error) {
	s := &Schemas{compiled: map[string]*jsonschema.Schema{}}
	own := jsonschema.NewCompiler()
	own.AssertFormat()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openwop.EventSchema()))
	if err := errors.Join(err, own.AddResource("events", doc)); err != nil {
		return nil, err
	}
	if s.ours, err = own.Compile("events"); err != nil {
		return nil, err
	}
	if dir := folder(); dir != "" {
		s.wire, err = read(dir)
	}
	return s, err
})

// folder finds the schemas of the wire; "": they are not here.
func folder() string {
	if dir := os.Getenv("OPENWOP_SCHEMAS"); dir != "" {
		return dir
	}
	at, err := os.Getwd()
	for ; err == nil; at = filepath.Dir(at) {
		dir := filepath.Join(at, "shared", "schemas", "openwop")
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return ""
}

func read(dir string) (*jsonschema.Compiler, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseRegexpEngine(readPattern)
	files, err := fs.Glob(os.DirFS(dir), "*.schema.json")
	if err != nil || len(files) == 0 {
		return nil, errors.Join(fmt.Errorf("no schemas in %s", dir), err)
	}
	for _, f := range files {
		raw, err := fs.ReadFile(os.DirFS(dir), f)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err := errors.Join(err, c.AddResource(base+f, doc)); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	return c, nil
}

// named returns a schema of the wire; nil: there is none of that name.
func (s *Schemas) named(name string) *jsonschema.Schema {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.compiled[name]
	if !known {
		c, _ = s.wire.Compile(base + name) // nil then
		s.compiled[name] = c
	}
	return c
}

// Check holds a document, as encoding/json reads it, to a schema of the wire.
func (s *Schemas) Check(t T, schema string, v any) {
	t.Helper()
	if s.wire == nil {
		return
	}
	c := s.named(schema)
	if c == nil {
		t.Fatalf("woptest: there is no schema %s", schema)
		return
	}
	valid(t, c, schema, v, v)
}

// valid holds v to a schema, and shows all of it.
func valid(t T, c *jsonschema.Schema, what string, v, all any) {
	t.Helper()
	if err := c.Validate(v); err != nil {
		raw, _ := json.Marshal(all) // it came from JSON
		t.Errorf("%s: %v\n%s", what, err, raw)
	}
}

// closed are payloads that have a schema of their own beside the loose one.
var closed = map[string]string{
	agentbus.EventConversationOpened: "conversation-event.schema.json", agentbus.EventConversationExchanged: "conversation-event.schema.json",
	agentbus.EventConversationClosed: "conversation-event.schema.json", agentbus.EventOrchestratorDecided: "run-orchestrator-decided-event.schema.json",
	agentbus.EventWaitRequested: "suspend-request.schema.json", agentbus.EventChannelWritten: "channel-written-payload.schema.json",
}

// Event holds one event to all the schemas that it has (E1).
func (s *Schemas) Event(t T, e map[string]any) {
	t.Helper()
	valid(t, s.ours, "our own schema", e, e)
	if s.wire == nil {
		return
	}
	kind, _ := e["type"].(string)
	s.Check(t, "run-event.schema.json", e)
	if c := s.named("run-event-payloads.schema.json#/$defs/" + camel(kind)); c != nil {
		valid(t, c, kind, e["payload"], e)
	} else if !strings.HasPrefix(kind, "agentbus.") {
		t.Errorf("%s has no schema", kind)
	}
	if closed[kind] != "" {
		s.Check(t, closed[kind], e["payload"])
	}
}

// Events checks every event of a log, and what must hold of all logs: it is dense
// from run.started on, ends with its one terminal event if it has one, and names the
// call that a tool returned from (E9, E10, E24).
func (s *Schemas) Events(t T, events []map[string]any) {
	t.Helper()
	seen, calls, ended := map[any]bool{}, map[any]any{}, false
	for i, e := range events {
		s.Event(t, e)
		if e["sequence"] != float64(i) || seen[e["eventId"]] {
			t.Errorf("event %d has sequence %v and id %v", i, e["sequence"], e["eventId"])
		}
		seen[e["eventId"]] = true
		kind, _ := e["type"].(string)
		if ended {
			t.Errorf("event %d of %d is %s, behind the end", i, len(events), kind)
		}
		ended = ended || agentbus.Terminal(kind)
		if node, has := e["nodeId"]; has && node == nil { // E74
			t.Errorf("nodeId of event %d is null", i)
		}
		p, _ := e["payload"].(map[string]any)
		if kind == agentbus.EventAgentToolCalled {
			calls[p["callId"]] = e["eventId"]
		}
		call, called := calls[p["callId"]]
		if lone := p["status"] == "forbidden" || p["status"] == "rate_limited"; kind == agentbus.EventAgentToolReturned && (called || !lone) && e["causationId"] != call {
			t.Errorf("toolReturned %d is caused by %v, and its call is %v", i, e["causationId"], call)
		}
	}
	if len(events) > 0 && events[0]["type"] != agentbus.EventRunStarted {
		t.Errorf("the first event is %v", events[0]["type"])
	}
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

// MatchString is part of jsonschema.Regexp.
func (p pattern) MatchString(s string) bool {
	return p.is.MatchString(s) && (p.not == nil || !p.not.MatchString(s))
}

// String is part of jsonschema.Regexp.
func (p pattern) String() string { return p.is.String() }
