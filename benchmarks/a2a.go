//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// a2aConfig is that of a bus before an agent that speaks A2A.
const a2aConfig = `listen: %s
admin: {listen: ""}
store: {url: "sqlite:%s"}
drain_timeout: 1s
keys: [{id: bench, secret_env: ` + busKey + `}]
agents: {peer: {kind: a2a, url: %q, price: {call: 0.001}}}
`

// readTask is the task that is read again and again.
const readTask = "task-read"

// newA2APeer starts an A2A agent that answers every request at once: one about
// a task with that, any other with a new one.
func newA2APeer() *httptest.Server {
	const task = `{"jsonrpc":"2.0","id":"1","result":{"task":{"id":"%s","contextId":"ctx","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"%s"}]}]}}}`
	text := strings.Repeat("word ", 100)
	var n counter64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = fmt.Fprintf(w, `{"name":"peer","supportedInterfaces":[{"url":"http://%s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, r.Host)
			return
		}
		body, _ := io.ReadAll(r.Body)
		id := readTask
		if !bytes.Contains(body, []byte(readTask)) {
			id = "task-" + strconv.FormatInt(n.next(), 10)
		}
		_, _ = fmt.Fprintf(w, task, id, text) // a caller that left is counted below
	}))
}

// A counter64 counts.
type counter64 struct {
	mu sync.Mutex
	n  int64
}

func (c *counter64) next() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// measureA2A measures what A2A costs behind the bus, next to a bare
// ReverseProxy: sends, which are calls of the ledger, and reads, which pass.
func measureA2A(ctx context.Context, o options, dir string, r *report) error {
	l := &lab{dir: dir}
	defer l.stop()
	if err := build(ctx, o, dir); err != nil {
		return err
	}
	peer := newA2APeer()
	defer peer.Close()
	bare, bus := &target{name: bareproxy, addr: freeAddr()}, &target{name: agentbus, addr: freeAddr()}
	file := filepath.Join(dir, "a2a.yaml")
	text := fmt.Sprintf(a2aConfig, bus.addr, filepath.Join(dir, "a2a.db"), peer.URL)
	err := os.WriteFile(file, []byte(text), 0o600)
	if err == nil {
		bare.process, err = l.start(ctx, bare.addr, "bareproxy", "-addr", bare.addr, "-up", peer.URL)
	}
	if err == nil {
		bus.process, err = l.start(ctx, bus.addr, "agentbus", "serve", "--config", file)
	}
	if err != nil {
		return err
	}
	upstream := &target{name: direct, addr: peer.Listener.Addr().String()}
	for round := range o.rounds {
		say("A2A, round %d of %d", round+1, o.rounds)
		for _, c := range []struct{ name, method string }{{"A2A, send", "SendMessage"}, {"A2A, get", "GetTask"}} {
			if err := compareA2A(ctx, o, r, c.name, c.method, []*target{upstream, bare, bus}); err != nil {
				return err
			}
		}
	}
	return nil
}

func compareA2A(ctx context.Context, o options, r *report, name, method string, targets []*target) error {
	one, many := map[string]a2aFigures{}, map[string]a2aFigures{}
	for _, t := range targets {
		var err error
		if one[t.name], err = loadA2A(ctx, t, method, 1, o.each/2); err != nil {
			return err
		}
		if many[t.name], err = loadA2A(ctx, t, method, 64, o.each); err != nil {
			return err
		}
	}
	if own := one[bareproxy].p50 - one[direct].p50; own > 0 {
		r.add(name+", 1 connection", "added p50 against ReverseProxy", (one[agentbus].p50-one[direct].p50)/own)
	}
	r.add(name+", 1 connection", "added p50, ms", (one[agentbus].p50-one[direct].p50)*1e3)
	r.add(name+", 64 connections", "CPU a request against ReverseProxy", many[agentbus].cpu/many[bareproxy].cpu)
	r.add(name+", 64 connections", "requests/s against ReverseProxy", many[agentbus].rate/many[bareproxy].rate)
	return nil
}

// a2aFigures are what one load came to: seconds, seconds of CPU and a rate.
type a2aFigures struct{ p50, cpu, rate float64 }

// loadA2A sends requests over so many connections for a time.
func loadA2A(ctx context.Context, t *target, method string, conns int, d time.Duration) (f a2aFigures, err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: conns, DisableCompression: true}
	defer transport.CloseIdleConnections()
	before, err := t.cpu()
	if err != nil {
		return f, err
	}
	took, faults := make([][]float64, conns), make([]error, conns)
	until := time.Now().Add(d)
	var senders sync.WaitGroup
	for i := range conns {
		senders.Go(func() {
			for n := 0; time.Now().Before(until) && faults[i] == nil; n++ {
				began := time.Now()
				faults[i] = sendA2A(ctx, transport, t, method, strconv.Itoa(i)+"-"+strconv.Itoa(n))
				took[i] = append(took[i], time.Since(began).Seconds())
			}
		})
	}
	senders.Wait()
	after, err := t.cpu()
	if err = errors.Join(errors.Join(faults...), err); err != nil {
		return f, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return a2aFigures{p50: all[len(all)/2], cpu: (after - before) / float64(len(all)), rate: float64(len(all)) / d.Seconds()}, nil
}

// cpu returns the seconds of CPU of the target's process; 0 for one in this
// process.
func (t *target) cpu() (float64, error) {
	if t.process == nil {
		return 0, nil
	}
	return cpuSeconds(t.process.Process.Pid)
}

func sendA2A(ctx context.Context, transport http.RoundTripper, t *target, method, id string) error {
	path := "/rpc"
	if t.name == agentbus {
		path = "/a2a/peer"
	}
	params := `{"id":"` + readTask + `"}`
	if method == "SendMessage" {
		params = `{"message":{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"hello"}]}}`
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.addr+path, strings.NewReader(`{"jsonrpc":"2.0","id":"1","method":"`+method+`","params":`+params+`}`))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+benchKey)
	r.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"task"`)) {
		err = fmt.Errorf("%s answered %d %.200s", t.name, resp.StatusCode, body)
	}
	return err
}
