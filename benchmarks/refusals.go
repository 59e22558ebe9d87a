//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A refusal is a request that the bus turns away before any work is done.
type refusal struct {
	name   string
	header string // each counter in it is another number in every request
	status string
	key    string // whose it is; "": benchKey
}

const counter = "00000000000000000000"

var refusals = []refusal{
	{"depth, a new turn each", "x-tangle-runid: refused" + counter + "\r\nx-tangle-turnid: refused" + counter + ".t0.critic\r\nx-tangle-forwarded-depth: 4\r\n", "429", ""},
	{"depth, one turn again and again", "x-tangle-runid: refused\r\nx-tangle-turnid: refused.t0.critic\r\nx-tangle-forwarded-depth: 4\r\n", "429", ""},
	{"a bad header", "x-tangle-forwarded-depth: four\r\n", "400", ""},
	{"budget, a new turn each", "x-tangle-runid: broke" + counter + "\r\nx-tangle-turnid: broke" + counter + ".t0.critic\r\n", "402", brokeKey},
}

const refusalBody = `{"model":"gpt-4o-mini","messages":[{"role":"system","content":"You are a helpful researcher agent."},{"role":"user","content":"Say hello to the critic agent, please."}]}`

// request returns the bytes of a request to addr, and where its counters stand.
func (f refusal) request(addr string) (raw []byte, counters []int) {
	raw = fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\n%sContent-Length: %d\r\n\r\n%s",
		addr, cmp.Or(f.key, benchKey), f.header, len(refusalBody), refusalBody)
	for i := 0; ; {
		j := bytes.Index(raw[i:], []byte(counter))
		if j < 0 {
			return raw, counters
		}
		counters = append(counters, i+j)
		i += j + len(counter)
	}
}

// storm sends such requests over 64 connections, and returns how many were
// refused a second and the CPU seconds of the bus for 10,000 of them.
func (f refusal) storm(ctx context.Context, bus *target, d time.Duration) (rate, cpu float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	before, err := cpuSeconds(bus.process.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	var n, next atomic.Int64
	next.Store(time.Now().UnixNano()) // unlike any other storm's
	faults := make([]error, jsonLoad.conc)
	began := time.Now()
	var senders sync.WaitGroup
	for i := range faults {
		senders.Go(func() { faults[i] = f.send(ctx, bus.addr, &n, &next) })
	}
	senders.Wait()
	took := time.Since(began).Seconds()
	if err := errors.Join(faults...); err != nil {
		return 0, 0, err
	}
	after, err := cpuSeconds(bus.process.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	return float64(n.Load()) / took, (after - before) / float64(n.Load()) * 10_000, nil
}

// send sends until ctx ends.
func (f refusal) send(ctx context.Context, addr string, n, next *atomic.Int64) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // all was read
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	r := bufio.NewReaderSize(c, 16<<10)
	raw, counters := f.request(addr)
	for ctx.Err() == nil {
		number := next.Add(1)
		for _, at := range counters {
			for i, n := at+len(counter)-1, number; i >= at; i, n = i-1, n/10 {
				raw[i] = byte('0' + n%10)
			}
		}
		if _, err := c.Write(raw); err != nil {
			return err
		}
		status, err := readAnswer(r)
		if err != nil {
			return fmt.Errorf("a refusal (%s): %w", f.name, err)
		}
		if status != f.status {
			return fmt.Errorf("a refusal (%s) has status %s, not %s", f.name, status, f.status)
		}
		n.Add(1)
	}
	return nil
}

// readAnswer reads an answer of a known length and returns its status.
func readAnswer(r *bufio.Reader) (status string, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 12 {
		return "", fmt.Errorf("%q is no answer", line)
	}
	status = string(line[9:12])
	length := -1
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return "", err
		}
		if len(line) <= 2 {
			break
		}
		if name, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(name, []byte("content-length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return "", err
			}
		}
	}
	if length < 0 {
		return "", errors.New("the answer has no length")
	}
	_, err = r.Discard(length)
	return status, err
}

// cpuSeconds returns the CPU time of a process so far.
func cpuSeconds(pid int) (float64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // behind the name, which may hold spaces
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is %q", pid, b)
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100, err // USER_HZ on Linux
}

// holdStreams opens so many streams that last, and returns the bytes of memory
// that each adds to the bus, buffers of the run time included.
func holdStreams(ctx context.Context, bus *target, n int) (each int64, err error) {
	body := `{"model":"` + held + `","stream":true,"messages":[{"role":"user","content":"hello"}]}`
	request := fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		bus.addr, benchKey, len(body), body)
	pid := bus.process.Process.Pid
	before, err := memory(pid)
	if err != nil {
		return 0, err
	}
	var d net.Dialer
	for range n {
		c, err := d.DialContext(ctx, "tcp", bus.addr)
		if err != nil {
			return 0, err
		}
		defer c.Close() //nolint:errcheck // the stream is not read to its end
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return 0, err
		}
		if _, err := c.Write(request); err != nil {
			return 0, err
		}
		first := make([]byte, 4096)
		if k, err := io.ReadAtLeast(c, first, 12); err != nil || string(first[9:12]) != "200" {
			return 0, fmt.Errorf("a stream began with %q: %w", first[:k], err)
		}
	}
	after, err := memory(pid)
	return (after - before) / int64(n), err
}
