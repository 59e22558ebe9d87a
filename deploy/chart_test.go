package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// chart is the folder of the chart.
const chart = "helm/agentbus"

// A tree is a document of YAML.
type tree = map[string]any

// at returns what stands at the keys and indices of path, or nil.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(tree)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// values returns the values of the chart, with some laid over them.
func values(t *testing.T, over string) tree {
	t.Helper()
	v := readTree(t, filepath.Join(chart, "values.yaml"))
	var o tree
	if err := yaml.Unmarshal([]byte(over), &o); err != nil {
		t.Fatal(err)
	}
	return laid(v, o)
}

// laid lays o over v, tables member by member, as Helm does: null takes a member
// out, and stays where there is none.
func laid(v, o tree) tree {
	for key, value := range o {
		if _, there := v[key]; there && value == nil {
			delete(v, key)
			continue
		}
		below, isTree := v[key].(tree)
		if above, ok := value.(tree); ok && isTree {
			value = laid(below, above)
		}
		v[key] = value
	}
	return v
}

func readTree(t *testing.T, path string) (v tree) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// render returns the objects of the chart, by kind and name, and its notes. It
// knows the functions of Helm that the chart uses and no others: a template
// with another one is an error here.
func render(t *testing.T, values tree) (objects map[string]tree, notes string, err error) {
	t.Helper()
	about := readTree(t, filepath.Join(chart, "Chart.yaml"))
	data := tree{
		"Values":       values,
		"Release":      tree{"Name": "bus", "Namespace": "agents", "Service": "Helm"},
		"Capabilities": tree{"KubeVersion": tree{"Version": newest}},
		"Chart":        tree{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
	}
	set := template.New("chart").Option("missingkey=error")
	set.Funcs(helm(set))
	files, err := filepath.Glob(chart + "/templates/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	if _, err := set.ParseFiles(files...); err != nil {
		t.Fatal(err)
	}
	objects = map[string]tree{}
	for _, path := range files {
		name := filepath.Base(path)
		var b bytes.Buffer
		if err := set.ExecuteTemplate(&b, name, data); err != nil {
			return nil, "", err
		}
		switch {
		case name == "NOTES.txt":
			notes = b.String()
		case !strings.HasPrefix(name, "_"):
			if err := decode(&b, objects); err != nil {
				return nil, "", fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return objects, notes, nil
}

// decode adds the documents of r to objects.
func decode(r io.Reader, objects map[string]tree) error {
	for d := yaml.NewDecoder(r); ; {
		var o tree
		err := d.Decode(&o)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case o != nil:
			objects[fmt.Sprint(o["kind"], "/", at(o, "metadata", "name"))] = o
		}
	}
}

// helm are the functions of Helm's templates that the chart uses.
func helm(set *template.Template) template.FuncMap {
	indent := func(n int, s string) string {
		space := strings.Repeat(" ", n)
		return space + strings.ReplaceAll(s, "\n", "\n"+space)
	}
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := set.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"toYaml": func(v any) (string, error) {
			b, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(b), "\n"), err
		},
		"nindent": func(n int, s string) string { return "\n" + indent(n, s) },
		"quote":   func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"default": func(other, v any) any {
			if v == nil || v == "" {
				return other
			}
			return v
		},
		"required": func(message string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(message)
			}
			return v, nil
		},
		"fail":   func(message string) (string, error) { return "", errors.New(message) },
		"hasKey": func(m tree, key string) bool { _, ok := m[key]; return ok },
		"lower":  strings.ToLower,
		"semverCompare": func(atLeast, version string) (bool, error) { // of versions before 1.100
			atLeast, ok := strings.CutPrefix(strings.TrimSuffix(atLeast, "-0"), ">=")
			if !ok {
				return false, errors.New("semverCompare takes >= only")
			}
			return strings.TrimPrefix(version, "v") >= atLeast, nil
		},
		"list":       func(v ...any) []any { return v },
		"int":        func(v any) int { n, _ := v.(int); return n },
		"trunc":      func(n int, s string) string { return s[:min(n, len(s))] },
		"trimSuffix": func(end, s string) string { return strings.TrimSuffix(s, end) },
	}
}
