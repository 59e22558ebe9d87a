//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A peer is a proxy that others use. It is measured when it is installed.
type peer struct {
	name    string
	version string // the flag that prints it
	config  string // with the addresses of itself and the upstream
	args    func(dir, file string) []string
}

var peers = []peer{
	{
		name: "nginx", version: "-v",
		config: `worker_processes auto;
daemon off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path nginx-body;
	proxy_temp_path nginx-proxy;
	fastcgi_temp_path nginx-fastcgi;
	uwsgi_temp_path nginx-uwsgi;
	scgi_temp_path nginx-scgi;
	keepalive_requests 1000000000;
	upstream mock { server %[2]s; keepalive 512; keepalive_requests 1000000000; }
	server {
		listen %[1]s;
		location / {
			proxy_pass http://mock;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
		}
	}
}
`,
		args: func(dir, file string) []string { return []string{"-p", dir, "-c", file} },
	},
	{
		name: "haproxy", version: "-v",
		config: `defaults
	mode http
	timeout connect 5s
	timeout client 60s
	timeout server 60s
	http-reuse always
frontend front
	bind %[1]s
	default_backend mock
backend mock
	server mock %[2]s maxconn 4096
`,
		args: func(_, file string) []string { return []string{"-f", file} },
	},
}

// startPeers starts the peers that are installed in front of the mock.
func (l *lab) startPeers(ctx context.Context) error {
	for _, p := range peers {
		path, err := exec.LookPath(p.name)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			l.absent = append(l.absent, p.name)
			continue
		}
		version, err := exec.CommandContext(ctx, path, p.version).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w\n%s", path, p.version, err, version)
		}
		first, _, _ := strings.Cut(string(version), "\n")
		t := &target{name: p.name, addr: freeAddr(), version: first}
		file := filepath.Join(l.dir, p.name+".conf")
		if err := os.WriteFile(file, fmt.Appendf(nil, p.config, t.addr, l.mock), 0o600); err != nil {
			return err
		}
		if t.process, err = l.start(ctx, t.addr, path, p.args(l.dir, file)...); err != nil {
			return err
		}
		l.targets = append(l.targets, t)
	}
	return nil
}
