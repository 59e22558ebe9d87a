//go:build linux

// Command benchmarks measures what the bus costs: a call next to a bare
// reverse proxy and to the peers it finds installed, and a durable turn next
// to a bare loop of write and fdatasync on the same disk.
//
// Every figure is a ratio of two figures of the same round, and what is printed
// is the median of the rounds and their spread; single figures of a shared
// machine are worth nothing. It needs the tools of shared/bench beside the
// repository, and Linux for CPU and memory. The results go into
// benchmarks/RESULTS.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	rounds int
	out    string
	bench  string        // folder of the load generator, the mock upstream and the bare proxy
	each   time.Duration // of one measurement
	only   string        // the one part to measure; "": all

	postgres string // URL of a server whose user may create databases; "": one of our own
}

// parts are what can be measured alone.
var parts = []string{"durable", "runs", "leaving", "a2a", "calls", "postgres"}

// has reports whether a part is to be measured.
func (o options) has(part string) bool { return o.only == "" || o.only == part }

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; every target is measured in every one")
	flag.StringVar(&o.out, "out", filepath.Join("benchmarks", "RESULTS.md"), "file to write the results to")
	flag.StringVar(&o.bench, "bench", filepath.Join("..", "shared", "bench"), "folder of the measuring tools")
	flag.DurationVar(&o.each, "d", 2*time.Second, "duration of one measurement")
	flag.StringVar(&o.only, "only", "", "measure this alone, "+strings.Join(parts, ", ")+", and leave the file of the results as it is")
	flag.StringVar(&o.postgres, "postgres", "", "URL of a PostgreSQL to measure replicas on, whose user may create databases; absent: one that is installed here is started for it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch db := os.Getenv(replicaOf); {
	case db != "":
		err = beReplica(ctx, db)
	case flag.NArg() == 4 && flag.Arg(0) == floor:
		err = beFloor(ctx, flag.Args()[1:])
	default:
		err = run(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.rounds < 1 || flag.NArg() > 0 || o.only != "" && !slices.Contains(parts, o.only) {
		return errors.New("usage: go run ./benchmarks [-rounds N] [-out FILE] [-bench DIR] [-d DURATION] [-only " + strings.Join(parts, "|") + "]")
	}
	if _, err := os.Stat(filepath.Join(o.bench, "load")); err != nil && o.has("calls") {
		return fmt.Errorf("the measuring tools are not at %s: name their folder with -bench: %w", o.bench, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute+time.Duration(o.rounds)*(10*time.Minute+40*o.each)) // a run that hangs ends all the same
	defer cancel()
	dir, err := os.MkdirTemp(".", ".bench-") // on the disk that is measured
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := newReport(o)
	if err := measureParts(ctx, o, dir, r); err != nil {
		return err
	}
	text := r.markdown(ctx)
	_, tables, _ := strings.Cut(text, "\n## ")
	say("\n## %s", tables)
	if o.only != "" {
		return nil
	}
	return os.WriteFile(o.out, []byte(text), 0o644) //nolint:gosec // it is published
}

// measureParts measures the parts that are asked for.
func measureParts(ctx context.Context, o options, dir string, r *report) error {
	for _, part := range parts {
		var err error
		switch {
		case !o.has(part):
		case part == "durable":
			err = measureDurable(ctx, o, dir, r)
		case part == "runs":
			err = measureRuns(ctx, dir, r)
		case part == "leaving":
			err = measureLeaving(ctx, dir, r)
		case part == "a2a":
			err = measureA2A(ctx, o, dir, r)
		case part == "calls":
			err = measureCalls(ctx, o, dir, r)
		case part == "postgres":
			err = measurePostgres(ctx, o, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// say tells whoever runs this how far it is.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stdout, format+"\n", args...) //nolint:errcheck // the results are in a file
}
