package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentbus/agentbus/server/config"
)

// configVerbs are the verbs below agentbus config.
type configVerbs struct {
	Check   checkVerb   `cmd:"" help:"Read the configuration and report every fault."`
	Explain explainVerb `cmd:"" help:"Print every key, or one and what is below it: its value in force, where it came from and what it is for."`
	Schema  schemaVerb  `cmd:"" help:"Print the JSON Schema of the configuration file."`
}

// checkVerb reports what is wrong with the configuration.
type checkVerb struct{}

// checked is what agentbus config check --json prints of a configuration that
// is right.
type checked struct {
	Path          string           `json:"path"` // "" when no file was read
	Keys          int              `json:"keys"`
	Agents        int              `json:"agents"`
	Conversations int              `json:"conversations"`
	Warnings      []config.Warning `json:"warnings"`
}

// Run prints what was read, and the warnings.
func (*checkVerb) Run(a *app) error {
	c, warnings, err := config.Load(a.source())
	if err != nil {
		return err
	}
	r := checked{Path: c.Path, Keys: len(c.Keys), Agents: len(c.Agents), Conversations: len(c.Conversations), Warnings: warnings}
	if warnings == nil {
		r.Warnings = []config.Warning{}
	}
	var b strings.Builder
	for _, w := range warnings {
		b.WriteString("warning: " + w.String() + "\n")
	}
	what := r.Path + " is right"
	if r.Path == "" {
		what = "there is no file, so all values are defaults"
	}
	fmt.Fprintf(&b, "%s: %s, %s, %s\n", what, count(r.Keys, "key"), count(r.Agents, "agent"), count(r.Conversations, "conversation"))
	return a.answer(r, b.String())
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// explainVerb prints the configuration in force.
type explainVerb struct {
	Key string `arg:"" optional:"" complete:"key" help:"One key, such as limits.max_depth, agents.NAME.url or keys[0], which need not be set. Else all that are in force."`
}

// Run prints each setting.
func (v *explainVerb) Run(a *app) error {
	if v.Key != "" {
		return v.one(a)
	}
	c, err := a.load()
	if err != nil {
		return err
	}
	return a.answer(c.Settings(), config.Explain(c))
}

// one prints what a key is, also while the file has faults: who mends them asks.
func (v *explainVerb) one(a *app) error {
	c, _, err := config.Load(a.source())
	if err != nil {
		fmt.Fprintln(a.stderr, "agentbus: warning: the configuration has a fault, so these are not the values in force; see agentbus config check") //nolint:errcheck // nobody is left to tell
		if c, _, err = config.Parse("", nil, config.Source{Env: func(string) (string, bool) { return "", false }}); err != nil {
			return err
		}
	}
	t, err := c.Topic(v.Key)
	if err != nil {
		return &failure{exit: exitUsage, what: harmless(err.Error()), next: "see agentbus config explain"}
	}
	return a.answer(t, t.String())
}

// schemaVerb prints the JSON Schema of the configuration file.
type schemaVerb struct{}

// Run prints the schema; it is JSON with or without --json.
func (*schemaVerb) Run(a *app) error {
	schema := config.Schema()
	return a.answer(json.RawMessage(schema), string(schema))
}
