//go:build linux

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// floor makes this program a bare ReverseProxy that is as durable as G21 asks, and
// does nothing else: it writes and syncs a record before it calls, and one before it
// answers. What it adds to a call is what nobody who keeps to G21 can do without.
const floor = "floor"

// startFloor starts one in front of the mock.
func (l *lab) startFloor(ctx context.Context) (*target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t := &target{name: floor, addr: freeAddr()}
	t.process, err = l.start(ctx, t.addr, self, floor, t.addr, "http://"+l.mock, filepath.Join(l.dir, "floor.log"))
	return t, err
}

// beFloor serves until ctx ends: args are its address, its upstream and its file.
func beFloor(ctx context.Context, args []string) error {
	up, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	f, err := os.Create(args[2])
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // what it holds was synced
	var mu sync.Mutex
	keep := func() error {
		mu.Lock()
		defer mu.Unlock()
		if _, err := f.Write(make([]byte, 512)); err != nil {
			return err
		}
		return syscall.Fdatasync(int(f.Fd()))
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(up) },
		ModifyResponse: func(*http.Response) error { return keep() },
	}
	s := &http.Server{Addr: args[0], ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := keep(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	})}
	stopped := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stopped()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
