package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the verbs print into the scripts")

// A script is a dialogue in a directory of its own. Its lines are
//
//	# a comment
//	write FILE        what follows behind | is the file
//	env NAME=VALUE    a variable of the commands that follow
//	terminal WIDTH    the commands that follow print to a terminal; 0: they do not
//	head N            of the commands that follow, N lines of stdout are shown at most; 0: all
//	bus FILE          a bus serves that configuration from here on; PUBLIC and ADMIN in commands are its URLs
//	$ agentbus …      a command; below it stands what it printed, what went to
//	                  stderr behind 2|, and its exit code if it is not 0
//
// Ids are shown as RUN-1, RUN-2 and so on, in the order in which they were seen,
// and can be typed so; times as TIME, measured ones as 0.0s, the ports of listeners
// as PORT, secrets as SECRET. A slow answer is told in more pieces, so its chunks are
// left out, and events have the number N. Colours are shown as <1>, <31> and <0>; of
// what is drawn again and again, what stands there in the end. A bus that serves is ended once it does.
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
			if testing.Short() && filepath.Base(path) == "forms.txt" {
				t.Skip("it prints everything five times")
			}
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
			if diff := gocmp.Diff(string(want), got); diff != "" {
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
		served, isBus := strings.CutPrefix(text, "bus ")
		most, isHead := strings.CutPrefix(text, "head ")
		content, isContent := strings.CutPrefix(text, "|")
		switch {
		case printed && !isCommand && text != "":
			continue
		case isBus:
			b := serving(t, served, maps.Clone(shell.vars), "--quiet")
			shell.urls = map[string]string{"PUBLIC": b.url, "ADMIN": b.admin}
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
		case isHead:
			var err error
			if shell.head, err = strconv.Atoi(most); err != nil {
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
	urls  map[string]string // of the bus, by what they are called
	width int               // of the terminal; 0: there is none
	head  int               // lines of stdout that are shown; 0: all
}

// execute returns what a command prints. Empty lines would end it in the
// script, so they are shown as a dot; the directory is shown as HERE.
func (s *shell) execute(t *testing.T, args []string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := io.Writer(&stdout)
	if len(args) > 0 && args[0] == "serve" {
		out = ending{&stdout, cancel}
	}
	a := newApp(strings.NewReader(""), out, &stderr, lookup(s.vars))
	a.terminal = func(w io.Writer) (int, int, bool) { return s.width, 24, s.width > 0 && w == out }
	for i, arg := range args {
		args[i] = cmp.Or(s.ids[arg], s.urls[arg], arg)
	}
	code := a.main(ctx, args)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	shown := 0
	for line := range strings.Lines(drawn(stdout.String())) {
		if shown++; s.head > 0 && shown > s.head {
			b.WriteString("…\n")
			break
		}
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

// An ending is the stdout of a bus that is to end once it serves.
type ending struct {
	io.Writer
	end func()
}

func (e ending) Write(p []byte) (int, error) {
	defer e.end()
	return e.Writer.Write(p)
}

// drawn is what stands on a terminal once text was written to it that draws its
// last lines again and again.
func drawn(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if m := redrawn.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits
			lines = lines[:len(lines)-n]
			line = strings.TrimPrefix(line, m[0])
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

var (
	redrawn  = regexp.MustCompile("^\x1b\\[(\\d+)A\r\x1b\\[J")
	tenths   = regexp.MustCompile(`\b\d+\.\d+ ?(µs|ms|s)\b`)
	secretRE = regexp.MustCompile(`\bab_[\w-]{43}`)
	handleRE = regexp.MustCompile(`\bab_[\w-]{6}`)
	portRE   = regexp.MustCompile(`127\.0\.0\.1:[3-6]\d{4}\b`)

	idRE    = regexp.MustCompile(`\b(run_[0-9a-f]{8}-[0-9a-f-]{27}|int_[0-9a-f]{32})\b`)
	eventRE = regexp.MustCompile(`\bevt_run_[0-9a-f-]{36}_`)
	reqRE   = regexp.MustCompile(`\breq_[0-9a-f]{24}\b`)
	ownerRE = regexp.MustCompile(`"owner": "[0-9a-f-]{36}/[0-9/]+"`)
	timeRE  = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	partRE  = regexp.MustCompile(`\b(conv|inv)_[0-9a-f]{16}\b`)
	tookRE  = regexp.MustCompile(`"(ts|durationMs)":\d+`)
	hexRE   = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	chunkRE = regexp.MustCompile(`(?m)^.*\boutput\.chunk\b.*\n`)
	countRE = regexp.MustCompile(`(?m)^(TIME  )\d+(  [a-z.]+  \{)|(\{"position":)\d+(,)|("id":"evt_RUN_)\d+(")|(turns, )\d+( events  as)|("events": )\d+(\n)`)
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
	text = strings.NewReplacer(runtime.Version(), "GO", runtime.GOOS+"/"+runtime.GOARCH, "PLATFORM").Replace(text)
	text = ownerRE.ReplaceAllString(reqRE.ReplaceAllString(eventRE.ReplaceAllString(text, "evt_RUN_"), "req_ID"), `"owner": "OWNER"`)
	text = handleRE.ReplaceAllString(secretRE.ReplaceAllString(text, "SECRET"), "ab_HANDLE")
	text = portRE.ReplaceAllString(tenths.ReplaceAllString(text, "0.0s"), "127.0.0.1:PORT")
	text = tookRE.ReplaceAllString(partRE.ReplaceAllString(text, "${1}_ID"), `"$1":0`)
	text = countRE.ReplaceAllString(chunkRE.ReplaceAllString(timeRE.ReplaceAllString(text, "TIME"), ""), "${1}${3}${5}${7}${9}N${2}${4}${6}${8}${10}")
	return hexRE.ReplaceAllString(text, "HASH")
}
