// Package openapi holds an OpenAPI document to the handlers that it describes:
// it is for tests.
package openapi

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// location is what the schemas of a document know it as.
const location = "file:///openapi.json"

// A Document is an OpenAPI 3.1 document. It is for one test at a time.
type Document struct {
	paths   map[string]map[string]operation
	named   map[string]schema
	schemas *jsonschema.Compiler
}

// A schema is one of the document that has a name, as far as it is looked at.
type schema struct {
	Properties map[string]any `json:"properties"`
}

// An operation is one of the document, as far as it is looked at.
type operation struct {
	ID         string `json:"operationId"`
	Parameters []struct {
		Name string `json:"name"`
		In   string `json:"in"`
	} `json:"parameters"`
	Responses map[string]any `json:"responses"`
}

// An Answer is what a handler answered.
type Answer struct {
	Status      int
	ContentType string
	Body        string
}

// Read reads the document in a file.
func Read(t *testing.T, file string) *Document {
	t.Helper()
	data, err := os.ReadFile(file) //nolint:gosec // the test names it
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Version string                          `json:"openapi"`
		Paths   map[string]map[string]operation `json:"paths"`
		Shared  struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(data, &d); err != nil || d.Version != "3.1.0" {
		t.Fatalf("%s is OpenAPI %s: %v", file, d.Version, err)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(location, whole); err != nil {
		t.Fatal(err)
	}
	return &Document{d.Paths, d.Shared.Schemas, c}
}

// Operations returns the method and path of every operation, sorted. It fails
// the test where one has no id of its own, or leaves a variable of its path
// undescribed.
func (d *Document) Operations(t *testing.T) (all []string) {
	t.Helper()
	ids := map[string]bool{}
	for path, methods := range d.paths {
		for method, op := range methods {
			all = append(all, strings.ToUpper(method)+" "+path)
			if op.ID == "" || ids[op.ID] {
				t.Errorf("%s %s: its operationId %q is not its own", method, path, op.ID)
			}
			ids[op.ID] = true
			for segment := range strings.SplitSeq(path, "/") {
				if name, ok := strings.CutPrefix(segment, "{"); ok && !op.describes(strings.TrimSuffix(name, "}")) {
					t.Errorf("%s %s does not describe %s", method, path, segment)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func (op operation) describes(variable string) bool {
	for _, p := range op.Parameters {
		if p.Name == variable && p.In == "path" {
			return true
		}
	}
	return false
}

// Check fails the test unless the operation of a method and path may be
// answered like this. Of JSON lines each is looked at; what is no JSON has no
// schema that says more than its type.
func (d *Document) Check(t *testing.T, method, path string, a Answer) {
	t.Helper()
	status := strconv.Itoa(a.Status)
	op, ok := d.paths[path][strings.ToLower(method)]
	if _, named := op.Responses[status]; !named {
		status = "default"
	}
	if _, named := op.Responses[status]; !ok || !named || status == "default" && a.Status < 400 {
		t.Errorf("%s %s answers %d, which is not documented", method, path, a.Status)
		return
	}
	schema, err := d.schemas.Compile(d.place(path, strings.ToLower(method), status, a.ContentType))
	if err != nil {
		t.Errorf("%s %s answers %d as %s, which is not documented: %v", method, path, a.Status, a.ContentType, err)
		return
	}
	bodies := []string{a.Body}
	switch kind, _, _ := strings.Cut(a.ContentType, ";"); {
	case strings.HasSuffix(kind, "jsonl"):
		bodies = strings.Split(strings.TrimSuffix(a.Body, "\n"), "\n")
	case !strings.HasSuffix(kind, "json"):
		return
	}
	for _, body := range bodies {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err == nil {
			err = schema.Validate(v)
		}
		if err != nil {
			t.Errorf("%s %s answers what is not documented: %v\n%s", method, path, err, body)
		}
	}
}

// Describes fails the test where the schema of a name lacks a member that v, a struct,
// may be written with: one that the answers of the test happen not to have, too.
func (d *Document) Describes(t *testing.T, name string, v any) {
	t.Helper()
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, named := d.named[name].Properties[member]; member != "" && member != "-" && !named {
			t.Errorf("%s is written with %s, which is not documented", name, member)
		}
	}
}

// place returns where the schema of an answer stands.
func (d *Document) place(path, method, status, contentType string) string {
	at := location + "#/paths/" + pointer(path) + "/" + method + "/responses/" + status
	if response, ok := d.paths[path][method].Responses[status].(map[string]any); ok {
		if ref, ok := response["$ref"].(string); ok {
			at = location + ref
		}
	}
	kind, _, _ := strings.Cut(contentType, ";")
	return at + "/content/" + pointer(kind) + "/schema"
}

// pointer writes a name as a part of a JSON pointer in a URL.
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}
