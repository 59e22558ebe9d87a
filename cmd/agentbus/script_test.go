package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the verbs print into the scripts")

// A script is a dialogue in a directory of its own. Its lines are
//
//	# a comment
//	write FILE        what follows behind | is the file
//	env NAME=VALUE    a variable of the commands that follow
//	$ agentbus …      a command; below it stands what it printed, what went to
//	                  stderr behind 2|, and its exit code if it is not 0
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	t.Setenv("COLUMNS", "80") // help is as wide as the terminal
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			path := filepath.Join(here, path)
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			got := perform(t, string(want))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got); go test -update writes it:\n%s", filepath.Base(path), diff)
			}
		})
	}
}

// perform runs a script and returns it with what its commands print now.
func perform(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	vars := map[string]string{}
	file, held := "", "" // the file that is being written, and what it holds
	printed := false     // the lines that follow were printed by a command
	for line := range strings.Lines(script) {
		text := strings.TrimSuffix(line, "\n")
		args, isCommand := strings.CutPrefix(text, "$ agentbus")
		name, isWrite := strings.CutPrefix(text, "write ")
		pair, isEnv := strings.CutPrefix(text, "env ")
		content, isContent := strings.CutPrefix(text, "|")
		switch {
		case printed && !isCommand && text != "":
			continue
		case isCommand:
			out.WriteString(line + execute(t, strings.Fields(args), vars))
			printed = true
			continue
		case isWrite:
			file, held = name, ""
			save(t, file, held)
		case isEnv:
			key, value, _ := strings.Cut(pair, "=")
			vars[key] = value
		case isContent:
			held += strings.TrimPrefix(content, " ") + "\n"
			save(t, file, held)
		}
		printed = false
		out.WriteString(line)
	}
	return out.String()
}

func save(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// execute returns what a command prints. Empty lines would end it in the
// script, so they are shown as a dot; the directory is shown as HERE.
func execute(t *testing.T, args []string, vars map[string]string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr, func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	})
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(stdout.String()) {
		b.WriteString(strings.Replace(line, "\n", "", 1))
		if line == "\n" {
			b.WriteString(".")
		}
		b.WriteString("\n")
	}
	for line := range strings.Lines(stderr.String()) {
		b.WriteString("2| " + strings.TrimSuffix(line, "\n") + "\n")
	}
	if code != 0 {
		fmt.Fprintf(&b, "exit %d\n", code)
	}
	return strings.ReplaceAll(b.String(), here, "HERE")
}
