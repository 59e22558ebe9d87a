package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A loopback is where the programs of a bus that does not serve reach it: while
// conversations are driven, on a port of this machine that takes nobody else.
type loopback struct {
	mu    sync.Mutex
	users int    // drives that may run programs
	stop  func() // nil: nothing listens
}

// reachable lets the programs of this bus call back until done is called (B2). A
// bus that serves is reached where it serves.
func (s *Server) reachable(ctx context.Context) (done func()) {
	if len(s.now().programs) == 0 {
		return func() {}
	}
	l := &s.loopback
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users == 1 && s.address() == "" {
		stop, err := s.listenForPrograms(ctx)
		if err != nil { // a program that calls says that it cannot
			s.log.LogAttrs(ctx, slog.LevelWarn, "programs cannot call this bus", slog.Any("error", err))
		}
		l.stop = stop
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users--; l.users == 0 && l.stop != nil {
			l.stop()
			l.stop = nil
		}
	}
}

func (s *Server) listenForPrograms(ctx context.Context) (stop func(), err error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	url := "http://" + listener.Addr().String()
	srv := s.http(s.onlyPrograms(s.Handler()), 0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(listener) // until it is closed
	}()
	s.url.Store(&url)
	return func() {
		s.url.CompareAndSwap(&url, nil) // unless the bus serves by now
		_ = srv.Close()                 // the turns whose calls these were are over
		<-ended
	}, nil
}

// onlyPrograms refuses whoever has no token of a turn that this bus is serving.
func (s *Server) onlyPrograms(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, ours, err := s.tokens.Scope(agentbus.NewCredential(r.Header.Get("Authorization")))
		if err == nil && !ours {
			err = &agentbus.Error{
				Code: agentbus.CodeUnauthenticated, Message: "this bus takes calls of its own programs only: it drives a conversation, and does not serve",
				Explain: &agentbus.Explain{Rule: "B2", Next: "start one that serves: agentbus serve"},
			}
		}
		if err != nil {
			httpx.WriteError(w, agentbus.Lineage{}, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}
