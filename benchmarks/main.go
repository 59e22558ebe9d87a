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
	"runtime"
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
	a2a    bool          // measure A2A only, and write no file
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; every target is measured in every one")
	flag.StringVar(&o.out, "out", filepath.Join("benchmarks", "RESULTS.md"), "file to write the results to")
	flag.StringVar(&o.bench, "bench", filepath.Join("..", "shared", "bench"), "folder of the measuring tools")
	flag.DurationVar(&o.each, "d", 2*time.Second, "duration of one measurement")
	flag.BoolVar(&o.a2a, "a2a", false, "measure A2A only, and write no file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.rounds < 1 || flag.NArg() > 0 {
		return errors.New("usage: go run ./benchmarks [-rounds N] [-out FILE] [-bench DIR] [-d DURATION] [-a2a]")
	}
	if runtime.GOOS != "linux" {
		return errors.New("CPU and memory are read from /proc: run it on Linux")
	}
	if _, err := os.Stat(filepath.Join(o.bench, "load")); err != nil {
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
	if err := measureA2A(ctx, o, dir, r); err != nil {
		return err
	}
	if o.a2a {
		for _, x := range r.rows {
			say("%s: %s %s", x.figure, x.metric, x.of)
		}
		return nil
	}
	if err := measureDurable(ctx, o, dir, r); err != nil {
		return err
	}
	if err := measureLeaving(ctx, dir, r); err != nil {
		return err
	}
	if err := measureCalls(ctx, o, dir, r); err != nil {
		return err
	}
	text := r.markdown(ctx)
	_, tables, _ := strings.Cut(text, "\n## ")
	say("\n## %s", tables)
	return os.WriteFile(o.out, []byte(text), 0o644) //nolint:gosec // it is published
}

// say tells whoever runs this how far it is.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stdout, format+"\n", args...) //nolint:errcheck // the results are in a file
}
