package docs_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/agentbus/agentbus/server/config"
)

// The runbook lists every variable that overrides a setting.
func TestVariablesAreListed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var look func(reflect.Type)
	look = func(section reflect.Type) {
		for sf := range section.Fields() {
			if name := sf.Tag.Get("env"); name != "" && !regexp.MustCompile(`(?m)^\|.*\b`+name+`\b`).Match(page) {
				t.Errorf("docs/operations.md lacks %s", name)
			}
			if sf.Type.Kind() == reflect.Struct {
				look(sf.Type)
			}
		}
	}
	look(reflect.TypeFor[config.Config]())
}

// checkConfig gives a block to the loader. A part of a file is completed: agents
// and conversations that it names and does not define are made up, and every
// variable has a value.
func checkConfig(t *testing.T, b block) {
	t.Helper()
	text := b.text
	switch {
	case b.rest == "agent":
		text = "agents:\n  x:\n    kind: exec\n    command: [x]\n    output: jsonl\n" + indented(text, "    ")
	case strings.HasPrefix(text, "  "):
		text = "conversations:\n" + text
	}
	var file map[string]any
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	complete(file)
	data, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = config.Parse("agentbus.yaml", data, config.Source{Env: func(name string) (string, bool) {
		if !strings.Contains(text, name) {
			return "", false
		}
		h := sha256.Sum256([]byte(name))
		return hex.EncodeToString(h[:]), true
	}})
	if err != nil {
		t.Errorf("%v in\n%s", err, data)
	}
}

func indented(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

// complete adds to a file what it refers to.
func complete(file map[string]any) {
	agents, _ := file["agents"].(map[string]any)
	if agents == nil {
		agents = map[string]any{}
		file["agents"] = agents
	}
	conversations, _ := file["conversations"].(map[string]any)
	for _, c := range conversations {
		c, _ := c.(map[string]any)
		participants, _ := c["participants"].([]any)
		for _, p := range participants {
			p, _ := p.(map[string]any)
			name, _ := p["agent"].(string)
			if _, ok := agents[name]; !ok && name != "" {
				agents[name] = map[string]any{"kind": "builtin", "builtin": "echo"}
			}
		}
	}
}

// imports are the packages that Go in documents may use, by what it calls them.
var imports = map[string]string{
	"agentbus": "github.com/agentbus/agentbus", "conversation": "github.com/agentbus/agentbus/conversation", "gateway": "github.com/agentbus/agentbus/gateway",
	"policy": "github.com/agentbus/agentbus/policy", "agentbustest": "github.com/agentbus/agentbus/agentbustest", "openai": "github.com/agentbus/agentbus/openai",
	"context": "context", "http": "net/http", "fmt": "fmt", "testing": "testing",
}

var qualified = regexp.MustCompile(`\b([a-z]\w*)\.[A-Z]`)

// compile compiles Go: a file as it is, a part of one inside a function whose
// signature stands behind its language.
func compile(t *testing.T, b block) {
	t.Helper()
	src := b.text
	if !strings.HasPrefix(src, "package ") {
		var used []string
		for _, m := range qualified.FindAllStringSubmatch(src+b.rest, -1) {
			if path, ok := imports[m[1]]; ok {
				used = append(used, fmt.Sprintf("import %s %q\n", m[1], path))
			}
		}
		slices.Sort(used)
		signature := b.rest
		if signature == "" {
			signature = "()"
		}
		src = "package shown\n" + strings.Join(slices.Compact(used), "") + "func _" + signature + " {\n" + src + "}\n"
		src = regexp.MustCompile(`(?m)^(\w+) := `).ReplaceAllString(src, "var $1 = ")
		src = strings.Replace(src, "\n}\n", "\n"+use(src)+"}\n", 1)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	shown := filepath.Join(t.TempDir(), "shown.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "docs", "shown", "shown.go"): shown}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "overlay.json")
	for path, data := range map[string][]byte{shown: []byte(src), list: overlay} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", list, "./docs/shown")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, src)
	}
}

// use returns lines that use the variables that src declares at its top.
func use(src string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^var (\w+) = `).FindAllStringSubmatch(src, -1) {
		b.WriteString("_ = " + m[1] + "\n")
	}
	return b.String()
}

var flag = regexp.MustCompile(`(?:^|[\s\[(])(--[a-z][a-z-]*)`)

// checkUsage finds whether agentbus has the verbs and flags that lines begin
// with.
func checkUsage(t *testing.T, b block) {
	t.Helper()
	dir, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
		command, _, _ := strings.Cut(line, " # ")
		words := strings.Fields(command)
		if len(words) < 2 || filepath.Base(words[0]) != "agentbus" {
			t.Errorf("no command of agentbus: %s", line)
			continue
		}
		verb := words[1:2]
		if len(words) > 2 && slices.Contains([]string{"ledger", "keys", "config", "agents", "trace"}, verb[0]) && regexp.MustCompile(`^[a-z]+$`).MatchString(words[2]) {
			verb = words[1:3]
		}
		help, err := exec.CommandContext(t.Context(), filepath.Join(dir, "agentbus"), append(slices.Clone(verb), "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", verb, err, help)
		}
		for _, m := range flag.FindAllStringSubmatch(command, -1) {
			if !strings.Contains(string(help), m[1]) {
				t.Errorf("agentbus %v has no %s", verb, m[1])
			}
		}
	}
}
