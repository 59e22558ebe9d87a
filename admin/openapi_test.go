package admin_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const documentURL = "file:///openapi.json"

// An operation of the document, as far as the test reads it.
type operation struct {
	OperationID string
	Parameters  []struct{ Name, In, Ref string }
	Responses   map[string]struct{ Content map[string]any }
}

// A document is the OpenAPI document of the API, and its schemas.
type document struct {
	paths   map[string]map[string]operation
	schemas *jsonschema.Compiler
}

func readDocument(t *testing.T) document {
	t.Helper()
	data, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		OpenAPI string
		Paths   map[string]map[string]operation
	}
	if err := json.Unmarshal(data, &d); err != nil || d.OpenAPI != "3.1.0" {
		t.Fatalf("OpenAPI %s: %v", d.OpenAPI, err)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(documentURL, whole); err != nil {
		t.Fatal(err)
	}
	return document{d.Paths, c}
}

// check holds the answer to a request for a documented path against its schema.
func (d document) check(t *testing.T, method, path string, a answer) {
	t.Helper()
	status, kind := strconv.Itoa(a.status), strings.TrimSpace(strings.Split(a.header.Get("Content-Type"), ";")[0])
	op, ok := d.paths[path][strings.ToLower(method)]
	if !ok {
		t.Errorf("%s %s is not documented", method, path)
		return
	}
	place := documentURL + "#/paths/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path) + "/" + strings.ToLower(method) +
		"/responses/" + status + "/content/" + strings.ReplaceAll(kind, "/", "~1") + "/schema"
	if _, ok := op.Responses[status]; !ok {
		if a.status < 400 {
			t.Errorf("%s %s answers %s, which is not documented", method, path, status)
			return
		}
		place = documentURL + "#/components/schemas/Problem"
	}
	schema, err := d.schemas.Compile(place)
	if err != nil {
		t.Errorf("%s %s answers %s as %s, which is not documented: %v", method, path, status, kind, err)
		return
	}
	for body := range strings.Lines(a.body) { // JSON lines; anything else is one line
		if kind == "text/csv" || kind == "text/plain" {
			break
		}
		if path == "/openapi.json" {
			body = a.body
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err == nil {
			err = schema.Validate(v)
		}
		if err != nil {
			t.Errorf("%s %s: %v\n%s", method, path, err, body)
		}
		if path == "/openapi.json" {
			break
		}
	}
}

// Every route is in the document, and the document names nothing else.
func TestDocumentNamesEveryRoute(t *testing.T) {
	t.Parallel()
	var documented []string
	ids := map[string]bool{}
	for path, ops := range readDocument(t).paths {
		for method, op := range ops {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			if op.OperationID == "" || ids[op.OperationID] {
				t.Errorf("%s %s: operationId %q", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
			for _, name := range variables(path) {
				if !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In, Ref string }) bool { return p.Name == name && p.In == "path" }) {
					t.Errorf("%s %s does not describe {%s}", method, path, name)
				}
			}
		}
	}
	slices.Sort(documented)
	patterns := open(t, nil).api.Patterns()
	slices.Sort(patterns)
	if diff := cmp.Diff(patterns, documented); diff != "" {
		t.Errorf("routes (-served +documented):\n%s", diff)
	}
}

func variables(path string) (names []string) {
	for segment := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// What each route answers is what the document says.
func TestAnswersAreAsDocumented(t *testing.T) {
	t.Parallel()
	d, b := readDocument(t), open(t, nil)
	b.fill()
	ask := func(method, pattern, path, body string, status int) {
		t.Helper()
		a := b.request(method, path, adminKey, body)
		if a.status != status {
			t.Errorf("%s %s: %d %s, want %d", method, path, a.status, a.body, status)
		}
		d.check(t, method, pattern, a)
	}
	const v1 = "/admin/v1"
	for pattern, path := range map[string]string{
		"/runs": "/runs?limit=1", "/runs/{run}": "/runs/run_a", "/runs/{run}/calls": "/runs/run_a/calls", "/runs/{run}/executions": "/runs/run_a/executions",
		"/executions/{id}/turns": "/executions/run_a/turns", "/executions/{id}/events": "/executions/run_a/events", "/calls/live": "/calls/live",
		"/calls/unfinished": "/calls/unfinished", "/agents": "/agents", "/agents/{name}": "/agents/researcher", "/keys": "/keys", "/budgets": "/budgets",
		"/ledger/balances": "/ledger/balances", "/ledger/entries": "/ledger/entries?payer=alice", "/ledger/export": "/ledger/export", "/status": "/status",
	} {
		ask("GET", v1+pattern, v1+path, "", http.StatusOK)
	}
	ask("GET", "/openapi.json", "/openapi.json", "", http.StatusOK)
	ask("GET", v1+"/ledger/export", v1+"/ledger/export?format=csv", "", http.StatusOK)
	ask("POST", v1+"/keys", v1+"/keys", `{"id":"zoe","role":"admin","inter_agent":true}`, http.StatusCreated)
	ask("POST", v1+"/ledger/verify", v1+"/ledger/verify", "", http.StatusOK)
	ask("POST", v1+"/runs/{run}/stop", v1+"/runs/run_a/stop", "", http.StatusOK)
	ask("GET", v1+"/runs/{run}", v1+"/runs/run_a", "", http.StatusOK)
	ask("DELETE", v1+"/keys/{handle}", v1+"/keys/zoe", "", http.StatusOK)
	for _, c := range b.calls.Live() {
		ask("POST", v1+"/calls/{id}/void", v1+"/calls/"+strconv.FormatInt(c.ID, 10)+"/void", "", http.StatusOK)
	}
	ask("GET", v1+"/runs/{run}", v1+"/runs/run_none", "", http.StatusNotFound)
	ask("GET", v1+"/agents/{name}", v1+"/agents/none", "", http.StatusNotFound)
	ask("GET", v1+"/executions/{id}/turns", v1+"/executions/none/turns", "", http.StatusNotFound)
	ask("GET", v1+"/executions/{id}/events", v1+"/executions/none/events", "", http.StatusNotFound)
	ask("POST", v1+"/calls/{id}/void", v1+"/calls/7/void", "", http.StatusNotFound)
	ask("DELETE", v1+"/keys/{handle}", v1+"/keys/none", "", http.StatusNotFound)
	ask("GET", v1+"/ledger/entries", v1+"/ledger/entries", "", http.StatusBadRequest)
	ask("GET", v1+"/runs", v1+"/runs?limit=0", "", http.StatusBadRequest)
}
