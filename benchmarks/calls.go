//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"time"
)

var (
	jsonLoad = scenario{name: "JSON, 64 connections", conc: 64}
	jsonOne  = scenario{name: "JSON, 1 connection", conc: 1}
	sseLoad  = scenario{name: "SSE, 50 events at once, 64 connections", conc: 64, args: []string{"-stream"}}
	ssePaced = scenario{name: "SSE, 50 events 5 ms apart, 16 connections", conc: 16, args: []string{"-stream", "-model", "gpt-4o"}}
	replays  = scenario{name: "JSON, one turn repeated, 64 connections", conc: 64, args: []string{"-turns", "fixed"}}
)

// measureCalls measures the gateway and its peers.
func measureCalls(ctx context.Context, o options, dir string, r *report) error {
	l, err := newLab(ctx, o, dir)
	defer l.stop()
	if err != nil {
		return err
	}
	r.peers, r.absent = l.targets, l.absent
	for _, s := range []scenario{jsonLoad, sseLoad} { // what is measured is not the start of it
		for _, t := range l.targets {
			if _, err := l.load(ctx, t, s, o.each/4); err != nil {
				return err
			}
		}
	}
	for round := range o.rounds {
		say("calls, round %d of %d", round+1, o.rounds)
		if err := l.round(ctx, o, r); err != nil {
			return err
		}
	}
	return l.measureOnce(ctx, r)
}

// round measures every target in every scenario.
func (l *lab) round(ctx context.Context, o options, r *report) error {
	for _, s := range []scenario{jsonLoad, jsonOne, sseLoad, ssePaced} {
		got := map[string]figures{}
		for _, t := range l.targets {
			f, err := l.load(ctx, t, s, o.each)
			if err != nil {
				return err
			}
			got[t.name] = f
			r.note(s, t, f)
		}
		for _, t := range l.targets {
			if t.name != direct && t.name != bareproxy {
				r.compare(s, t, got[t.name], got[bareproxy], got[direct])
			}
		}
		if s.name == jsonOne.name {
			syncs, err := bareSyncs(ctx, l.dir, o.each/2)
			if err != nil {
				return err
			}
			r.add("added p50 of a call at 1 connection", "fdatasyncs of this disk", (got[agentbus].P50-got[direct].P50)/1000*syncs)
			r.add("added p50 of ReverseProxy at 1 connection", "fdatasyncs of this disk", (got[bareproxy].P50-got[direct].P50)/1000*syncs)
			f, err := l.load(ctx, l.floor, s, o.each)
			if err != nil {
				return err
			}
			r.add("added p50 of a ReverseProxy that syncs twice (G21), at 1 connection", "against ReverseProxy", (f.P50-got[direct].P50)/(got[bareproxy].P50-got[direct].P50))
		}
		if s.name == jsonLoad.name {
			if err := l.cheap(ctx, o, r, got); err != nil {
				return err
			}
		}
	}
	return nil
}

// cheap measures the answers of the bus that call no agent, against its served
// calls of the same round.
func (l *lab) cheap(ctx context.Context, o options, r *report, served map[string]figures) error {
	bus := l.bus()
	for _, f := range refusals {
		rate, cpu, err := f.storm(ctx, bus, o.each)
		if err != nil {
			return err
		}
		r.add("refusals: "+f.name, "rate against served calls", rate/served[agentbus].RPS)
		r.add("refusals: "+f.name, "CPU against a served call", cpu/served[agentbus].CPU)
	}
	f, err := l.load(ctx, bus, replays, o.each)
	if err != nil {
		return err
	}
	r.note(replays, bus, f)
	r.add(replays.name, "requests/s", f.RPS/served[bareproxy].RPS)
	r.add(replays.name, "CPU a request", f.CPU/served[bareproxy].CPU)
	return nil
}

func (l *lab) bus() *target {
	for _, t := range l.targets {
		if t.name == agentbus {
			return t
		}
	}
	return nil
}

const (
	openStreams = 5000 // for the memory of one
	starts      = 5
)

// measureOnce measures what needs a process of its own: how fast it is ready,
// and what an open stream holds.
func (l *lab) measureOnce(ctx context.Context, r *report) error {
	for i := range starts {
		began := time.Now()
		t, err := l.startBus(ctx, "start"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		if err := ready(ctx, t); err != nil {
			return err
		}
		r.add("start to ready, empty store", "seconds", time.Since(began).Seconds())
		if i > 0 {
			continue
		}
		each, err := holdStreams(ctx, t, openStreams)
		if err != nil {
			return err
		}
		r.add("memory of an open SSE stream", "KiB", float64(each)/1024)
	}
	return l.measureFull(ctx, r)
}

// entries stand in the ledger of a store that has been in use.
const entries = 1_000_000

// measureFull measures how fast a bus is ready whose ledger is full.
func (l *lab) measureFull(ctx context.Context, r *report) (err error) {
	say("writing %d entries", entries)
	store := filepath.Join(l.dir, "full.db")
	s, err := openBus(ctx, store)
	if err != nil {
		return err
	}
	_, err = reserveMany(ctx, s, 250, entries)
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	for i := range starts {
		began := time.Now()
		t, err := l.startBusOn(ctx, "full"+strconv.Itoa(i), store)
		if err != nil {
			return err
		}
		if err := ready(ctx, t); err != nil {
			return err
		}
		r.add("start to ready, 1,000,000 entries", "seconds", time.Since(began).Seconds())
	}
	return nil
}

// ready asks the bus whether it is.
func ready(ctx context.Context, bus *target) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", bus.addr)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // all was read
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: "+bus.addr+"\r\n\r\n"); err != nil {
		return err
	}
	status, err := readAnswer(bufio.NewReader(c))
	if err == nil && status != "200" {
		err = errors.New("the bus is not ready: " + status)
	}
	return err
}
