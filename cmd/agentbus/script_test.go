package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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
//	terminal WIDTH    the commands that follow print to a terminal; 0: they do not
//	$ agentbus …      a command; below it stands what it printed, what went to
//	                  stderr behind 2|, and its exit code if it is not 0
//
// Ids are shown as RUN-1, RUN-2 and so on, in the order in which they were seen,
// and can be typed so; times as TIME. Colours are shown as <1>, <31> and <0>.
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
	shell := &shell{vars: map[string]string{}, ids: map[string]string{}}
	file, held := "", "" // the file that is being written, and what it holds
	printed := false     // the lines that follow were printed by a command
	for line := range strings.Lines(script) {
		text := strings.TrimSuffix(line, "\n")
		args, isCommand := strings.CutPrefix(text, "$ agentbus")
		name, isWrite := strings.CutPrefix(text, "write ")
		pair, isEnv := strings.CutPrefix(text, "env ")
		size, isTerminal := strings.CutPrefix(text, "terminal ")
		content, isContent := strings.CutPrefix(text, "|")
		switch {
		case printed && !isCommand && text != "":
			continue
		case isCommand:
			out.WriteString(line + shell.execute(t, strings.Fields(args)))
			printed = true
			continue
		case isWrite:
			file, held = name, ""
			save(t, file, held)
		case isEnv:
			key, value, _ := strings.Cut(pair, "=")
			shell.vars[key] = value
		case isTerminal:
			var err error
			if shell.width, err = strconv.Atoi(size); err != nil {
				t.Fatal(err)
			}
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

// A shell is where the commands of a script run.
type shell struct {
	vars  map[string]string
	ids   map[string]string // as they are shown, to what they are
	width int               // of the terminal; 0: there is none
}

// execute returns what a command prints. Empty lines would end it in the
// script, so they are shown as a dot; the directory is shown as HERE.
func (s *shell) execute(t *testing.T, args []string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := newApp(strings.NewReader(""), &stdout, &stderr, lookup(s.vars))
	a.terminal = func(w io.Writer) (int, int, bool) { return s.width, 24, s.width > 0 && w == &stdout }
	for i, arg := range args {
		if id, ok := s.ids[arg]; ok {
			args[i] = id
		}
	}
	code := a.main(t.Context(), args)
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
	return s.steady(strings.ReplaceAll(b.String(), here, "HERE"))
}

var (
	idRE    = regexp.MustCompile(`\b(run_[0-9a-f]{8}-[0-9a-f-]{27}|int_[0-9a-f]{32})\b`)
	timeRE  = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	hexRE   = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	colours = regexp.MustCompile("\x1b\\[([0-9]+)m")
)

// steady takes out of what was printed what is another time another.
func (s *shell) steady(text string) string {
	text = colours.ReplaceAllString(text, "<$1>")
	text = idRE.ReplaceAllStringFunc(text, func(id string) string {
		for shown, is := range s.ids {
			if is == id {
				return shown
			}
		}
		kind, _, _ := strings.Cut(id, "_")
		shown := fmt.Sprintf("%s-%d", strings.ToUpper(kind), len(s.ids)+1)
		s.ids[shown] = id
		return shown
	})
	return hexRE.ReplaceAllString(timeRE.ReplaceAllString(text, "TIME"), "HASH")
}
