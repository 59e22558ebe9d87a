package examples_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	_ "github.com/agentbus/agentbus/agentbustest" // what the examples are made of, so that go test runs them again when it changes
	"github.com/agentbus/agentbus/internal/require"
)

var update = flag.Bool("update", false, "write what the examples print")

const (
	oneScreen = 60 // lines
	patience  = time.Minute
)

// Every example fits a screen, is named in the README, and prints what stands
// beside it.
func TestExamples(t *testing.T) {
	t.Parallel()
	require.Tool(t, "go")
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatal(mains, err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin, "./...").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, path := range mains {
		name := filepath.Dir(path)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(source, []byte("\n")); n > oneScreen {
				t.Errorf("%d lines; an example has at most %d", n, oneScreen)
			}
			if !strings.Contains(string(readme), "["+name+"]("+name+"/main.go)") {
				t.Errorf("README.md does not name it")
			}
			compare(t, filepath.Join(name, "output.txt"), run(t, filepath.Join(bin, name)))
		})
	}
}

// run runs a program without our environment and returns what it printed.
func run(t *testing.T, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{"TMPDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("it prints (-want +got); go test ./examples -update writes it:\n%s", diff)
	}
}
