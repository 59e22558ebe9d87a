package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/server/config"
)

// program makes an agent of a program.
func (s *wiring) program(name string, a config.Agent) (agentbus.Backend, error) {
	dir := a.Dir
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a place for working directories: %w; name one with dir", err)
		}
		dir = filepath.Join(cache, "agentbus", name)
	}
	output, fields := execagent.Output(a.Output), execagent.Fields(a.Fields)
	if a.Output == config.ExecClaude {
		output, fields = execagent.OutputJSONL, execagent.ClaudeStreamJSON()
	}
	env := s.cfg.Env
	if env == nil {
		env = os.LookupEnv
	}
	return execagent.New(execagent.Config{
		Name: name, Command: a.Command, Supervisor: s.cfg.Supervisor,
		Input: execagent.Input(a.Input), Output: output, Fields: fields, ReportCost: a.UsageCost,
		Timeout: a.Timeout, KillAfter: a.KillAfter, MaxOutput: int64(a.MaxOutput), MaxMemory: int64(a.MaxMemory),
		Env: a.Env, ForwardAuthorizationEnv: a.ForwardEnv, Dir: dir, DirAge: a.DirAge, ShareDir: a.ShareDir,
		Conversation: a.Affinity == config.AffinityConversation, InstallKey: s.store.InstallKey(),
		MaxDepth: s.cfg.Limits.MaxDepth, URL: s.address, Caller: onWhoseBill, Tokens: &s.tokens, Lookup: env, Logger: s.log,
	})
}

// onWhoseBill tells as whom an agent of this process calls, and who pays: the
// gateway has said so.
func onWhoseBill(ctx context.Context) (agentbus.Principal, agentbus.Payer) {
	p, _ := gateway.InProcessOf(ctx)
	return p.Caller, p.Payer
}

// address returns where the bus is reached from this machine, "" while it
// listens nowhere.
func (s *Server) address() string {
	if url := s.url.Load(); url != nil {
		return *url
	}
	return ""
}

// reachedAt notes where the bus listens, for programs of this machine.
func (s *Server) reachedAt(l net.Addr) {
	scheme := "http"
	if s.cfg.TLS != nil {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(l.String())
	if err != nil {
		return
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	url := scheme + "://" + net.JoinHostPort(host, port)
	if s.cfg.TLS != nil && s.cfg.PublicURL != "" { // the name its certificate is for
		url = s.cfg.PublicURL
	}
	s.url.Store(&url)
}
