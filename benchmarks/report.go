//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus/internal/measure"
)

// A report gathers the figures of all rounds and writes them down.
type report struct {
	options options
	began   time.Time
	peers   []*target
	absent  []string
	rows    []row
	faults  map[string]int // what went wrong with answers, by where
	shots   map[string]int // good answers, by where
}

// A row is one figure of one target.
type row struct {
	figure, metric string
	of             measure.Series
}

func newReport(o options) *report {
	return &report{options: o, began: time.Now(), faults: map[string]int{}, shots: map[string]int{}}
}

// add keeps one round's figure.
func (r *report) add(figure, metric string, f float64) {
	for i := range r.rows {
		if r.rows[i].figure == figure && r.rows[i].metric == metric {
			r.rows[i].of = append(r.rows[i].of, f)
			return
		}
	}
	r.rows = append(r.rows, row{figure, metric, measure.Series{f}})
}

func (r *report) get(figure, metric string) measure.Series {
	for i := range r.rows {
		if r.rows[i].figure == figure && r.rows[i].metric == metric {
			return r.rows[i].of
		}
	}
	return nil
}

// note counts the answers of a target, and what was wrong with some.
func (r *report) note(s scenario, t *target, f figures) {
	where := t.name + ", " + s.name
	r.shots[where] += f.N
	if f.Errs > 0 {
		r.faults[where] += f.Errs
		say("%s: %d answers failed: %v", where, f.Errs, f.Why)
	}
}

// compare keeps the figures of a target as ratios to the bare proxy's.
func (r *report) compare(s scenario, t *target, got, bare, upstream figures) {
	figure := figureOf(t, s)
	r.add(figure, "CPU a request", got.CPU/bare.CPU)
	r.add(figure, "requests/s", got.RPS/bare.RPS)
	if own := bare.P50 - upstream.P50; s.conc == 1 && own > 0 {
		r.add(figure, "added p50", (got.P50-upstream.P50)/own)
	}
	if own := bare.TTFC50 - upstream.TTFC50; s.name == ssePaced.name && own > 0 {
		r.add(figure, "added time to the first event", (got.TTFC50-upstream.TTFC50)/own)
	}
	r.add(figure, "memory", got.Memory/bare.Memory)
}

func figureOf(t *target, s scenario) string { return t.name + ": " + s.name }

// bars are those of the promises.
var bars = []bar{
	{figure: agentbus + ": " + jsonLoad.name, metric: "CPU a request", most: 1.5, goal: 0.5},
	{figure: agentbus + ": " + jsonLoad.name, metric: "requests/s", least: 0.7, goal: 3},
	{figure: agentbus + ": " + jsonOne.name, metric: "added p50", most: 2, goal: 0.5},
	{figure: agentbus + ": " + sseLoad.name, metric: "CPU a request", most: 1.5, goal: 0.8},
	{figure: agentbus + ": " + ssePaced.name, metric: "CPU a request", most: 1.5, goal: 0.8},
	{figure: "refusals: " + refusals[0].name, metric: "rate against served calls", least: 5},
	{figure: "refusals: " + refusals[1].name, metric: "rate against served calls", least: 5},
	{figure: "refusals: " + refusals[2].name, metric: "rate against served calls", least: 5},
	{figure: strconv.Itoa(manyRuns) + " runs at once", metric: "against fdatasync", least: 1, goal: 4},
	{figure: "one run", metric: "against fdatasync", least: 0.4, goal: 0.8},
	{figure: "a turn at 10,000 against one at 100", metric: "CPU", most: 1.5, goal: 1.1},
	{figure: "memory of an open SSE stream", metric: "KiB", most: 64, goal: 32},
	{figure: "refusals: " + refusals[3].name, metric: "rate against served calls", least: 5},
	{figure: "caller leaves, detach off: until the agent is left", metric: "ms", most: 100},
	{figure: "stop of a run of 50 agents: until all are left", metric: "seconds", most: 1},
	{figure: "start to ready, empty store", metric: "seconds", most: 0.3},
	{figure: "start to ready, 1,000,000 entries", metric: "seconds", most: 2},
}

// markdown returns the report.
func (r *report) markdown(ctx context.Context) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Results\n\nWritten by `make bench`; do not edit. The bars are those the bus promises.\n")
	line("- machine: %s, %d cores, Linux %s", cpuModel(), runtime.NumCPU(), output(ctx, "uname", "-r"))
	line("- Go: %s; commit %s", runtime.Version(), output(ctx, "git", "describe", "--always", "--dirty"))
	line("- date: %s, %s long", r.began.UTC().Format(time.DateTime+" MST"), time.Since(r.began).Round(time.Second))
	line("- command: `go run ./benchmarks -rounds %d -d %s`", r.options.rounds, r.options.each)
	line("- load average at the end: %s", strings.Join(strings.Fields(file("/proc/loadavg"))[:3], ", "))
	for _, t := range r.peers {
		if t.version != "" {
			line("- peer: %s", t.version)
		}
	}
	for _, name := range r.absent {
		line("- peer: %s is not installed here, so it was not measured", name)
	}
	r.barTable(line)
	r.gatewayTable(line)
	line("\n## The rest\n\n| what | figure | median (min–max) |\n|---|---|---|")
	for _, x := range r.rows {
		if !r.isPeer(x.figure) {
			line("| %s | %s | %s |", x.figure, x.metric, x.of)
		}
	}
	r.faultList(line)
	line("%s", meaning)
	return b.String()
}

func (r *report) barTable(line func(string, ...any)) {
	line("\n## Promises\n\n| what | figure | median (min–max) | bar | met | goal |\n|---|---|---|---|---|---|")
	for _, x := range bars {
		of := r.get(x.figure, x.metric)
		met, goal := "**no**", ""
		switch {
		case len(of) == 0:
			met = "not measured"
		case r.spoiled(x.figure) > 0:
			met = "not a result: answers failed"
		case x.met(of):
			met = "yes"
		}
		if x.goal > 0 {
			goal = strconv.FormatFloat(x.goal, 'g', -1, 64)
		}
		line("| %s | %s | %s | %s | %s | %s |", x.figure, x.metric, of, x, met, goal)
	}
}

func (r *report) gatewayTable(line func(string, ...any)) {
	line("\n## Next to ReverseProxy\n\nEach is a ratio to the bare `httputil.ReverseProxy` of the same round: 1 is as it.\n")
	line("| target and load | CPU a request | requests/s | added p50 | time to first event | memory |\n|---|---|---|---|---|---|")
	for _, s := range []scenario{jsonLoad, jsonOne, sseLoad, ssePaced} {
		for _, t := range r.peers {
			if t.name == direct || t.name == bareproxy {
				continue
			}
			f := figureOf(t, s)
			line("| %s | %s | %s | %s | %s | %s |", f, r.get(f, "CPU a request"), r.get(f, "requests/s"), r.get(f, "added p50"),
				r.get(f, "added time to the first event"), r.get(f, "memory"))
		}
	}
}

// isPeer reports whether a figure is a peer's; those have their own table.
func (r *report) isPeer(figure string) bool {
	name, _, of := strings.Cut(figure, ": ")
	return of && slices.ContainsFunc(r.peers, func(t *target) bool { return t.name == name })
}

// spoiled returns how many answers of a figure failed.
func (r *report) spoiled(figure string) int {
	name, load, _ := strings.Cut(figure, ": ")
	return r.faults[name+", "+load]
}

func (r *report) faultList(line func(string, ...any)) {
	if len(r.faults) == 0 {
		line("\nNo answer failed.")
		return
	}
	line("\n## Answers that failed\n\nWhat they are part of is no result. (`ReverseProxy` itself now and then cuts an unpaced stream.)\n")
	for _, s := range []scenario{jsonLoad, jsonOne, sseLoad, ssePaced, replays} {
		for _, t := range r.peers {
			if n := r.faults[t.name+", "+s.name]; n > 0 {
				line("- %s, %s: %d of %d", t.name, s.name, n, n+r.shots[t.name+", "+s.name])
			}
		}
	}
}

const meaning = `
## What the figures mean

- **CPU a request** is the CPU time of the proxy's processes for an answer: the steadiest figure, and the one that is paid for.
- **requests/s** is with everything on one machine: load, upstream and proxy share its cores, so part of every ratio is theirs.
- **added p50** is how much later the middle answer comes than without a proxy, next to how much later it comes with the bare one. One
  of our calls waits for two commits to the disk, one before the agent is asked and one before its caller is answered; ReverseProxy
  waits for none. So this ratio says how fast the disk is, more than anything else; among the rest, the same is told in fdatasyncs of
  this disk, of which a call that is durable twice cannot take fewer than two.
- The bus runs as it comes: ledger, access log and strict HTTP are on, and every call is a turn of its own. The peers keep nothing.
- The load generator asks for no trailers and negotiates no codings, so the bus spares it the trailer with the cost of a stream
  (gateway/stream.go). Whole HTTP libraries get these 30 bytes more than what is measured here.
- **refusals** are sent by 64 connections and counted against the served calls of the same round. A refused turn is recorded too.
- **one run** takes turns one after another; each waits for one commit, which holds the result, its event and the next intent. The
  backends answer at once and in process. The bare loop writes 1 KiB to the end of a file and calls fdatasync, before and after.
- **PostgreSQL** is the server that -postgres names, as it is set up there, or one that is started in /tmp; replicas are processes of their own on the same cores. A bare insert is one row of 1 KiB and its COMMIT, by as many connections as a replica writes with, before and
  after what it is compared with. A call is two commits, by 64 callers of 16 payers; a turn is one, of 256 runs at once. Those who claim
  look for 16 runs at a time. A tail is a follower at another replica, and its latency what passes from the acknowledgement of an event
  until it has it. The doorbell is measured on bare inserts: rung behind the COMMITs, as the bus does, and inside of each.
- **ledger** calls are reserved and settled, two commits each, by 64 callers.
- **memory of a run** is heap and stacks after a collection, in process, of 2,000 journaled runs whose first agent has not answered yet,
  and is what a driver costs while nothing happens. The resumption of a long run is what reading and rebuilding its transcript costs.
- **memory** is the proportional set size at the end of a run, what the collector has not given back included.
`

// cpuModel returns the name of the processor.
func cpuModel() string {
	for l := range strings.Lines(file("/proc/cpuinfo")) {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

func file(name string) string {
	b, _ := os.ReadFile(name) // "" where there is none
	return string(b)
}

func output(ctx context.Context, name string, args ...string) string {
	b, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
