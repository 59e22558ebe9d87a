package config_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/server/config"
)

// Whatever the file holds, reading it ends with a Config that can be printed, or
// with faults that say something.
func FuzzParse(f *testing.F) {
	f.Add(config.Example())
	for _, seed := range []string{
		"listen: 8080", "limits: {max_depth: ${N}}", "a: &a [*a]", "? [a]\n: b", "!!binary x: y", "<<: {a: b}", "keys: [{id: a, secret: x}]",
		"agents: {a: {kind: openai, url: 'http://h', headers: {x-tangle-runid: b}}}", "- - - - -", "\x00", "\xff\xfe", "a: |\n  b\n---\nc", "%YAML 1.1\n---\na: b",
		"conversations: {c: {participants: [{agent: p}, {agent: p}]}}\nagents: {p: {kind: conversation, conversation: c}}",
	} {
		f.Add([]byte(seed))
	}
	src := config.Source{Env: env(map[string]string{"N": "4"}), ReadFile: files(nil), Dev: true}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, warnings, err := config.Parse("agentbus.yaml", data, src)
		for _, w := range warnings {
			if strings.TrimSpace(w.String()) == "" {
				t.Error("a warning that says nothing")
			}
		}
		if err == nil {
			if config.Explain(c) == "" {
				t.Error("nothing to explain")
			}
			if _, err := json.Marshal(c.Settings()); err != nil {
				t.Error(err)
			}
			return
		}
		e, ok := errors.AsType[*config.Error](err)
		if !ok || c != nil || len(e.Faults) == 0 {
			t.Fatalf("Parse = %v, %v", c, err)
		}
		for _, fault := range e.Faults {
			if fault.Problem == "" || fault.Fix == "" || fault.Line < 1 || fault.Column < 1 {
				t.Errorf("a fault that says too little: %+v", fault)
			}
		}
	})
}
