package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A target is what a binary is for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// program is the name of the binary.
func (t target) program() string {
	if t.os == "windows" {
		return "agentbus.exe"
	}
	return "agentbus"
}

// targets are all that a release is made for.
var targets = []target{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// chosen returns the targets that a list names; an empty one names all.
func chosen(list string) ([]target, error) {
	if list == "" {
		return targets, nil
	}
	var some []target
	for name := range strings.SplitSeq(list, ",") {
		system, arch, _ := strings.Cut(name, "/")
		t := target{system, arch}
		if !slices.Contains(targets, t) {
			return nil, fmt.Errorf("%s is no target; they are %v", name, targets)
		}
		some = append(some, t)
	}
	return some, nil
}

// build returns the binary for t of the module at root. Nothing of the machine
// is in it: no path, no time, no setting of whoever makes it; what it says of
// its source is told to the linker. More variables may be given.
func (r *release) build(ctx context.Context, t target, root string, env []string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "agentbus-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is a copy
	path := filepath.Join(dir, t.program())
	link := "-s -w -buildid= -X main.linkedVersion=" + r.version + " -X main.linkedRevision=" + r.revision + " -X main.linkedTime=" + r.made.Format(time.RFC3339)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", link, "-o", path, "./cmd/agentbus") //nolint:gosec // what is given is ours
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "GOTOOLCHAIN=local"), env...)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}
	return os.ReadFile(path) //nolint:gosec // a folder of our own
}

// compare builds t again, from a clone somewhere else and with an empty build
// cache, and fails when that differs from what was packed.
func (r *release) compare(ctx context.Context, t target) error {
	first, err := r.build(ctx, t, r.root, nil)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "agentbus-again-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is a copy
	clone := filepath.Join(dir, "somewhere", "else")
	if _, err := output(ctx, r.root, "git", "clone", "--quiet", "--no-hardlinks", ".", clone); err != nil {
		return err
	}
	if _, err := output(ctx, clone, "git", "checkout", "--quiet", r.revision); err != nil {
		return err
	}
	again, err := r.build(ctx, t, clone, []string{"GOCACHE=" + filepath.Join(dir, "cache")})
	switch {
	case err != nil:
		return err
	case !bytes.Equal(first, again):
		return fmt.Errorf("%v made twice is not the same: is everything committed?", t)
	}
	fmt.Fprintf(os.Stdout, "%v made twice, in two places, is the same to the byte\n", t) //nolint:errcheck // nobody is left to tell
	return nil
}

// output returns what a command prints, without the line break.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // go and git, with what we give them
	cmd.Dir = dir
	out, err := cmd.Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(e.Stderr))
	}
	return strings.TrimSpace(string(out)), err
}
