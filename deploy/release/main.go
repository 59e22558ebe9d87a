// Command release makes what a version of agentbus is handed out as: static
// binaries for six targets in archives, a list of what is inside each, their
// checksums and the formula for Homebrew. The same commit, made with the same
// Go, comes out the same to the byte, wherever and whenever it is made; with
// -twice it proves that, by making one of them again from a clone, with an
// empty build cache.
//
//	go run ./deploy/release -version 0.1.0 -twice
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

// A release is what is made, and of what.
type release struct {
	version  string    // without v
	revision string    // of the source
	made     time.Time // of the revision: every date in what is made
	root     string    // of the module
	key      string    // file of the key that signs the checksums; "": they are not signed
	dist     string    // where to
	targets  []target
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes what the arguments ask for.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", "", "the version, such as 0.1.0; empty: the tag of this commit, or 0.0.0-REVISION")
	dist := flags.String("dist", "dist", "the folder to write to; what it held is removed")
	only := flags.String("targets", "", "OS/ARCH of those to make, with commas; empty: all")
	key := flags.String("key", "", "the file of an Ed25519 key, in PEM, that signs the checksums; empty: they are not signed")
	twice := flags.Bool("twice", false, "make the first one again from a clone, without a build cache, and compare")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := release{root: ".", dist: *dist, key: *key}
	if err := r.identify(ctx, *version); err != nil {
		return err
	}
	var err error
	if r.targets, err = chosen(*only); err != nil {
		return err
	}
	files, err := r.make(ctx)
	if err != nil {
		return err
	}
	if err := r.writeFormula(files); err != nil {
		return err
	}
	if *twice {
		return r.compare(ctx, r.targets[0])
	}
	return nil
}

// identify reads the revision, its time and, where version is empty, its tag.
func (r *release) identify(ctx context.Context, version string) error {
	head, err := output(ctx, r.root, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	var seconds int64
	if _, err := fmt.Sscanf(head, "%s %d", &r.revision, &seconds); err != nil {
		return fmt.Errorf("git log says %q: %w", head, err)
	}
	r.made = time.Unix(seconds, 0).UTC()
	if version == "" {
		version = "0.0.0-" + r.revision[:12]
		if tag, err := output(ctx, r.root, "git", "describe", "--tags", "--exact-match"); err == nil {
			version = tag
		}
	}
	r.version = strings.TrimPrefix(version, "v")
	if strings.ContainsAny(r.version, "/ '\"") {
		return fmt.Errorf("%q is not a version", version)
	}
	return nil
}

// make builds and packs every target and returns the archives, by target.
func (r *release) make(ctx context.Context) (map[target]archived, error) {
	if err := os.RemoveAll(r.dist); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.dist, 0o755); err != nil { //nolint:gosec // it is made to be handed out
		return nil, err
	}
	files := map[target]archived{}
	sums := sums{}
	for _, t := range r.targets {
		program, err := r.build(ctx, t, r.root, nil)
		if err != nil {
			return nil, err
		}
		bill, err := r.bill(t, program)
		if err != nil {
			return nil, err
		}
		a, err := r.archive(ctx, t, program)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(r.write(a.name, a.data, sums), r.write(r.base(t)+".cdx.json", bill, sums)); err != nil {
			return nil, err
		}
		files[t] = a
		fmt.Fprintf(os.Stdout, "%s  %s\n", a.sum, a.name) //nolint:errcheck // nobody is left to tell
	}
	return files, r.finish(sums.bytes())
}

// finish writes the checksums, and their signature where there is a key.
func (r *release) finish(sums []byte) error {
	if err := r.write(checksums, sums, nil); err != nil || r.key == "" {
		return err
	}
	signature, err := signed(sums, r.key)
	if err != nil {
		return err
	}
	return r.write(checksums+".sig", signature, nil)
}

// base is the name of what is made for a target, without its ending.
func (r *release) base(t target) string {
	return "agentbus_" + r.version + "_" + t.os + "_" + t.arch
}
