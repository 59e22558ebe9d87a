package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

const twoTalk = `agents: {echo: {kind: builtin, builtin: echo}, eliza: {kind: builtin, builtin: eliza}}
conversations: {chat: {participants: [{agent: echo}, {agent: eliza}], max_turns: 4}}
`

// Behind head, or whatever else reads no more, a run goes on to its end, and
// nothing complains.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	path := configure(t, twoTalk)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]exitCode{"run chat hello": exitOK, "config explain": exitFailed} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close() //nolint:errcheck // nobody reads
		var said bytes.Buffer
		cmd := exec.CommandContext(t.Context(), self, append(strings.Fields(args), "--config", path)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		cmd.Stdout, cmd.Stderr = w, &said
		_ = cmd.Run() // its exit code tells
		w.Close()     //nolint:errcheck // nothing is left in it
		if code := cmd.ProcessState.ExitCode(); code != int(want) || said.Len() > 0 {
			t.Errorf("agentbus %s ends with %d (%v) and says %q", args, code, cmd.ProcessState, said.String())
		}
	}
	runs, err := opened(t, path, nil).RunSummaries(t.Context(), agentbus.RunFilter{}, 2, "")
	if err != nil || len(runs) != 1 || runs[0].State != agentbus.RunDone || runs[0].Turns != 4 {
		t.Errorf("the run: %+v, %v", runs, err)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// What could not be printed is told: of a run where it can be read, of a key that
// nobody knows how to be rid of it.
func TestOutputIsLost(t *testing.T) {
	t.Parallel()
	path := configure(t, twoTalk)
	for args, want := range map[string]string{
		"run chat hello":    "next: see agentbus trace run_[0-9a-f-]+\n",
		"keys create carol": "next: agentbus keys revoke ab_[A-Za-z0-9_-]+, and make another\n",
	} {
		var said bytes.Buffer
		code := run(t.Context(), append(strings.Fields(args), "--config", path), strings.NewReader(""), io.Writer(full{}), &said, noEnv)
		if code != int(exitFailed) || !regexp.MustCompile(want).MatchString(said.String()) || !strings.Contains(said.String(), "why: no space left on device") {
			t.Errorf("agentbus %s ends with %d and says %s", args, code, said.String())
		}
	}
}

// A demo whose output is lost has failed, as any verb has.
func TestDemoIsLost(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shut, err := os.Open(os.DevNull) // which can only be read
	if err != nil {
		t.Fatal(err)
	}
	defer shut.Close() //nolint:errcheck // nothing is written to it
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, "demo")
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), asProgram+"=1")
	cmd.Stdout, cmd.Stderr = shut, &said
	_ = cmd.Run() // its exit code tells
	if code := cmd.ProcessState.ExitCode(); code != int(exitFailed) || !strings.Contains(said.String(), "could not be printed\n  why: bad file descriptor\n  next: ") {
		t.Errorf("agentbus demo ends with %d and says %s", code, said.String())
	}
}
