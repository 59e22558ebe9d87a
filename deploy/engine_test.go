package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/agentbus/agentbus/internal/require"
)

// engine is the program of interop/helm, which make clients builds.
const engine = "../bin/helm-engine"

// newest is a Kubernetes of today.
const newest = "v1.37.0"

// A helmed is what Helm makes of the chart.
type helmed struct {
	Files map[string]string
	Lint  []string
	Error string
}

// byHelm has Helm render and lint the chart with values of its own laid over.
func byHelm(t *testing.T, values, kubernetes string) (h helmed) {
	t.Helper()
	if _, err := os.Stat(engine); err != nil {
		require.Missing(t, "bin/helm-engine (make clients)")
	}
	c := exec.CommandContext(t.Context(), engine, chart, kubernetes)
	c.Stdin = strings.NewReader(values)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &h); err != nil {
		t.Fatal(err)
	}
	return h
}

// opened puts the configuration of the bus in the place of its text, which Helm
// indents in its own way.
func opened(t *testing.T, objects map[string]tree) map[string]tree {
	t.Helper()
	var c tree
	data, _ := objects["ConfigMap/bus"]["data"].(tree)
	text, _ := data["agentbus.yaml"].(string)
	if err := yaml.Unmarshal([]byte(text), &c); err != nil || c == nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	data["agentbus.yaml"] = c
	return objects
}

// Helm itself makes of the chart what these tests make of it, so that what they
// hold of that holds of Helm's, and its lint finds no fault.
func TestHelm(t *testing.T) {
	t.Parallel()
	for name, tt := range installations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, notes, err := render(t, values(t, tt.values))
			if err != nil {
				t.Fatal(err)
			}
			h := byHelm(t, tt.values, newest)
			if h.Error != "" {
				t.Fatal(h.Error)
			}
			got := map[string]tree{}
			for file, text := range h.Files {
				if path.Base(file) == "NOTES.txt" {
					if diff := cmp.Diff(notes, text); diff != "" {
						t.Error(diff)
					}
				} else if err := decode(strings.NewReader(text), got); err != nil {
					t.Errorf("%s: %v in\n%s", file, err, text)
				}
			}
			if diff := cmp.Diff(opened(t, want), opened(t, got)); diff != "" {
				t.Error(diff)
			}
			for _, found := range h.Lint {
				if !strings.Contains(found, "[INFO]") {
					t.Error(found)
				}
			}
		})
	}
}

// Helm refuses what these tests refuse, and with its schema what no bus can be
// installed with, and names the value.
func TestHelmRefuses(t *testing.T) {
	t.Parallel()
	all := maps.Clone(refusals)
	maps.Copy(all, map[string]string{
		"replicas: 3":                         "additional properties 'replicas' not allowed",
		"store: {kind: mysql}":                "at '/store/kind': value must be one of 'sqlite', 'postgres'",
		"store: {postgres: {replicas: 0}}":    "at '/store/postgres/replicas': minimum: got 0, want 1",
		"store: {postgres: {url: mysql://x}}": "at '/store/postgres/url': 'mysql://x' does not match pattern",
		"service: {port: http}":               "at '/service/port': got string, want integer",
		"ingress: {tlsSecret: {name: a}}":     "at '/ingress/tlsSecret': got object, want string",
		"goMemLimit: lots":                    "at '/goMemLimit': 'lots' does not match pattern",
	})
	for over, want := range all {
		if h := byHelm(t, over, newest); !strings.Contains(h.Error, want) {
			t.Errorf("%s: %s", over, h.Error)
		}
	}
	for kubernetes, refused := range map[string]bool{"v1.26.9": true, "v1.27.0": false} {
		if h := byHelm(t, "", kubernetes); strings.Contains(h.Error, "is for Kubernetes >=1.27") != refused {
			t.Errorf("%s: %q", kubernetes, h.Error)
		}
	}
	for kubernetes, knows := range map[string]bool{"v1.29.9": false, "v1.30.0": true} { // a hook that sleeps
		if h := byHelm(t, "", kubernetes); strings.Contains(h.Files["agentbus/templates/statefulset.yaml"], "preStop") != knows {
			t.Errorf("%s: %s", kubernetes, h.Error)
		}
	}
}
