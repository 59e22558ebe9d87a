package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// The forms in which a verb prints.
var printForms = []string{"wide", "narrow", "piped", "json", "plain"}

// Verbs that are not in the scripts in every form: what they print are figures and
// times of this machine. The tests of TestDemo and TestBench look at those.
var ofThisMachine = []string{"demo", "bench"}

// Every verb is in the scripts, and so is what it prints, in each form.
func TestScriptsHaveEveryForm(t *testing.T) {
	t.Parallel()
	verbs := parserOf(t)
	scripts, err := filepath.Glob("testdata/script/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string]bool{} // by verb and form
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		width, plain := 0, false
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if size, ok := strings.CutPrefix(line, "terminal "); ok {
				width, _ = strconv.Atoi(size) // the scripts themselves are tested
			}
			if value, ok := strings.CutPrefix(line, "env NO_COLOR="); ok {
				plain = value != ""
			}
			if args, ok := strings.CutPrefix(line, "$ agentbus "); ok {
				printed[verbOf(verbs, strings.Fields(args))+" "+formOf(args, width, plain)] = true
			}
		}
	}
	for _, verb := range leaves(verbs, "") {
		for _, form := range printForms {
			if !printed[verb+" "+form] && !slices.Contains(ofThisMachine, verb) {
				t.Errorf("no script has agentbus %s in the form %s", verb, form)
			}
		}
	}
}

// formOf is the form that a command prints in.
func formOf(args string, width int, plain bool) string {
	switch {
	case strings.Contains(args, "--json"):
		return "json"
	case width == 0:
		return "piped"
	case plain:
		return "plain"
	case width < 80:
		return "narrow"
	}
	return "wide"
}

// verbOf is the verb that words begin with.
func verbOf(n *kong.Node, words []string) string {
	for _, c := range n.Children {
		if len(words) > 0 && c.Name == words[0] {
			return strings.TrimSuffix(c.Name+" "+verbOf(c, words[1:]), " ")
		}
	}
	return ""
}

// leaves are the verbs below n.
func leaves(n *kong.Node, path string) (verbs []string) {
	for _, c := range n.Children {
		name := strings.TrimPrefix(path+" "+c.Name, " ")
		switch {
		case c.Hidden:
		case len(c.Children) > 0:
			verbs = append(verbs, leaves(c, name)...)
		default:
			verbs = append(verbs, name)
		}
	}
	return verbs
}
