package server_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/agentbus/agentbus"
)

// A series is a figure as a bus exposes it: its labels, and what they were.
type series map[string][]string

// exposed are the figures of a bus by name.
func exposed(text string) map[string]series {
	all := map[string]series{}
	label := regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name := line[:strings.IndexAny(line+" ", "{ ")]
		if all[name] == nil {
			all[name] = series{}
		}
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			all[name][m[1]] = append(all[name][m[1]], m[2])
		}
	}
	return all
}

var (
	figureRE   = regexp.MustCompile(`\b((?:agentbus|go|process)_[a-z_]+|up)\b(?:\{([^}]*)\})?`)
	matcherRE  = regexp.MustCompile(`([a-z_]+)(?:=~|=|!=|!~)"([^"]*)"`)
	byRE       = regexp.MustCompile(`\bby \(([a-z_, ]+)\)`)
	templateRE = regexp.MustCompile(`\{\{ ?\$?(?:labels\.)?([a-z]+) ?\}\}`)
	ofScrape   = []string{"job", "instance"} // which Prometheus adds
)

// checkExpression fails unless each figure of an expression is one that a bus
// exposes, with the labels and the values it is asked for.
func checkExpression(t *testing.T, all map[string]series, expr string, shown ...string) {
	t.Helper()
	figures := figureRE.FindAllStringSubmatch(expr, -1)
	if len(figures) == 0 {
		t.Errorf("%s is of no figure", expr)
	}
	known := slices.Clone(ofScrape)
	for _, m := range figures {
		labels, ok := all[m[1]]
		if !ok && m[1] != "up" {
			t.Errorf("%s: no bus exposes %s", expr, m[1])
		}
		for label := range labels {
			known = append(known, label)
		}
		for _, match := range matcherRE.FindAllStringSubmatch(m[2], -1) {
			if labels[match[1]] == nil && !slices.Contains(ofScrape, match[1]) {
				t.Errorf("%s: %s has no label %s", expr, m[1], match[1])
			}
			for value := range strings.SplitSeq(match[2], "|") {
				if match[1] == "code" && !agentbus.Code(value).Known() || match[1] == "result" && !slices.Contains(labels["result"], value) {
					t.Errorf("%s: there is no %s %s", expr, match[1], value)
				}
			}
		}
	}
	by := byRE.FindAllStringSubmatch(expr, -1)
	for _, m := range by {
		for label := range strings.SplitSeq(m[1], ", ") {
			if !slices.Contains(known, label) {
				t.Errorf("%s: nothing in it has the label %s", expr, label)
			}
		}
	}
	for _, text := range shown {
		for _, m := range templateRE.FindAllStringSubmatch(text, -1) {
			grouped := len(by) == 0 || slices.ContainsFunc(by, func(b []string) bool { return slices.Contains(strings.Split(b[1], ", "), m[1]) })
			if m[1] != "value" && (!slices.Contains(known, m[1]) || !grouped) {
				t.Errorf("%q shows %s, which %s has not", text, m[1], expr)
			}
		}
	}
	if strings.Count(expr, "(") != strings.Count(expr, ")") {
		t.Errorf("%s: its parentheses do not match", expr)
	}
}

// usedBus is what a bus exposes whose agents answered, failed, and were refused.
func usedBus(t *testing.T) map[string]series {
	t.Helper()
	b := serveFile(t, onlyAlice+"agents: {echo: {kind: builtin, builtin: echo}, gone: {kind: openai, url: 'http://127.0.0.1:1/v1'}}\n")
	b.post("alice-secret", "echo", "r0")
	b.post("alice-secret", "echo", "r0")
	b.post("alice-secret", "gone", "r1")
	b.post("alice-secret", "nobody", "r2")
	return exposed(b.scrapeUntil(`agentbus_refusals_total{agent="-",code="agent_not_found"} 1`, `agentbus_failures_total{agent="gone",code="agent_unavailable"} 1`))
}

// TestDashboard: G33, the dashboard asks for figures, labels and values that a bus
// exposes, and shows each figure of the bus.
func TestDashboard(t *testing.T) {
	t.Parallel()
	all := usedBus(t)
	raw, err := os.ReadFile("../deploy/grafana/agentbus.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Templating struct {
			List []struct {
				Name, Type, Definition string
			}
		}
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d, %q, is not in order", i, p.Title)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			checkExpression(t, all, q.Expr, q.LegendFormat)
		}
	}
	values := regexp.MustCompile(`^label_values\(([a-z_]+), ([a-z]+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := values.FindStringSubmatch(v.Definition)
		if m == nil || all[m[1]] == nil || all[m[1]][m[2]] == nil && !slices.Contains(ofScrape, m[2]) {
			t.Errorf("variable %s asks for %q", v.Name, v.Definition)
		}
	}
	for name := range all {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(name, "agentbus_") && !strings.Contains(string(raw), base) {
			t.Errorf("no panel shows %s", base)
		}
	}
}

// TestAlerts: G33, each alert is of figures that a bus exposes, and names a
// section of the runbook that is there.
func TestAlerts(t *testing.T) {
	t.Parallel()
	all := usedBus(t)
	raw, err := os.ReadFile("../deploy/prometheus/agentbus.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr string
				For         string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(raw, &file); err != nil || len(file.Groups) != 1 {
		t.Fatal(file, err)
	}
	runbook, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, r := range file.Groups[0].Rules {
		if names[r.Alert] || !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("alert %q is not in order: %+v", r.Alert, r)
		}
		names[r.Alert] = true
		if d, err := time.ParseDuration(r.For); err != nil || d <= 0 {
			t.Errorf("%s waits for %q", r.Alert, r.For)
		}
		checkExpression(t, all, r.Expr, r.Annotations["summary"])
		_, section, _ := strings.Cut(r.Annotations["runbook"], "docs/operations.md#")
		if section == "" || !strings.Contains(strings.ToLower(string(runbook)), "\n## "+strings.ReplaceAll(section, "-", " ")+"\n") {
			t.Errorf("%s: the runbook has no section %q", r.Alert, section)
		}
	}
}
