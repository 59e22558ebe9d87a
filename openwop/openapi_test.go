package openwop_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus/openwop"
)

// E4: what the document describes is served, and nothing that it does not say is
// answered.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	run := b.start("conformance-noop")
	b.settle(run)
	var doc struct {
		Version string `json:"openapi"`
		Paths   map[string]map[string]struct {
			Responses map[string]any `json:"responses"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(openwop.OpenAPI(), &doc); err != nil || doc.Version != "3.1.0" {
		t.Fatal(doc.Version, err)
	}
	if len(doc.Paths) != 12 {
		t.Errorf("%d paths", len(doc.Paths))
	}
	for range 2 { // the second time its events are gone
		for path, operations := range doc.Paths {
			if !openwop.Serves(path) {
				t.Errorf("%s is not the host's", path)
			}
			at := strings.NewReplacer("/workflows/{id}", "/workflows/conformance-noop", "{id}", run, "{node}", "noop", "{token}", "x").Replace(path)
			for method, op := range operations {
				status, out, _ := b.do(strings.ToUpper(method), at, nil, "Accept", "application/json")
				if op.Responses[itoa(status)] == nil || out["error"] == "not_found" {
					t.Errorf("%s %s: %d %v is not described", method, path, status, out)
				}
			}
		}
		if _, err := b.store.ForgetEvents(t.Context(), time.Now().Add(time.Hour), 100); err != nil {
			t.Fatal(err)
		}
	}
}

// What a ServeMux would redirect is no path of the wire.
func TestServesOneSpelling(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/v1/runs": true, "/v1/runs/": true, "/v1/runs/x/events": true, "/v1/runs//x": false, "/v1/runs/../runs": false, "//v1/runs": false,
	} {
		if got := openwop.Serves(path); got != want {
			t.Errorf("Serves(%q) = %t, want %t", path, got, want)
		}
	}
}
