package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/server/config"
)

// A program is an agent that is one, and what it was made of.
type program struct {
	*execagent.Agent

	made     config.Agent
	maxDepth int
	noLegacy bool
}

// program makes an agent of a program. One that the configuration before has too
// is kept, with its workers (B4).
func (s *wiring) program(name string, a config.Agent) (agentbus.Backend, error) {
	if before := s.now(); before != nil {
		if p := before.programs[name]; p != nil && p.maxDepth == s.cfg.Limits.MaxDepth && p.noLegacy == !s.cfg.Lineage.LegacyParentFallback && reflect.DeepEqual(p.made, a) {
			s.programs[name] = p
			return p, nil
		}
	}
	made, err := s.newProgram(name, a)
	if err != nil {
		return nil, err
	}
	s.programs[name] = &program{made, a, s.cfg.Limits.MaxDepth, !s.cfg.Lineage.LegacyParentFallback}
	return made, nil
}

// endPrograms ends the workers of the programs of before that after, which may be
// nil, does not have. It does not wait.
func (s *Server) endPrograms(before, after *wiring) {
	for name, p := range before.programs {
		if after == nil || after.programs[name] != p {
			s.ending.Go(p.Close) // Server.Close waits for it
		}
	}
}

func (s *wiring) newProgram(name string, a config.Agent) (*execagent.Agent, error) {
	dir := a.Dir
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a place for working directories: %w; name one with dir", err)
		}
		dir = filepath.Join(cache, "agentbus", name)
	}
	output, fields := execagent.Output(a.Output), execagent.Fields(a.Fields)
	switch a.Output {
	case config.ExecClaude:
		output, fields = execagent.OutputJSONL, execagent.ClaudeStreamJSON()
	case config.ExecCodex:
		output, fields = execagent.OutputJSONL, execagent.CodexJSON()
	case config.ExecText, config.ExecJSONL:
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
		Conversation: a.Affinity == config.AffinityConversation, InstallKey: s.store.InstallKey(), NoLegacyParent: !s.cfg.Lineage.LegacyParentFallback, Session: execagent.Session(a.Session),
		Worker: a.Mode == config.ExecWorker, Workers: a.Workers, WorkerIdle: a.WorkerIdle,
		MaxDepth: s.cfg.Limits.MaxDepth, URL: s.address, Caller: onWhoseBill, Within: within, Tokens: &s.tokens, Lookup: env, Logger: s.log,
	})
}

// onWhoseBill tells as whom an agent of this process calls, and who pays: the
// gateway has said so.
func onWhoseBill(ctx context.Context) (agentbus.Principal, agentbus.Payer) {
	p, _ := gateway.InProcessOf(ctx)
	return p.Caller, p.Payer
}

// within tells the calls that one of an agent of this process is made inside of.
func within(ctx context.Context) []agentbus.TurnKey {
	p, _ := gateway.InProcessOf(ctx)
	return p.Within
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
