package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
)

// AdminHandler returns the admin listener's surface, for programs that bring
// their own server. It refuses everybody but admins.
func (s *Server) AdminHandler() http.Handler { return s.admin }

// ListenAdmin listens on the address of the admin listener. The listener is nil
// when the configuration has none.
func (s *Server) ListenAdmin(ctx context.Context) (net.Listener, error) {
	if s.cfg.Admin.Listen == "" {
		return nil, nil //nolint:nilnil // none is no fault
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Admin.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.cfg.Admin.Listen, err)
	}
	return l, nil
}

// adminPatience is how long an answer of the admin listener may go on when it
// ends.
const adminPatience = 5 * time.Second

// ServeAdmin serves the admin listener on l until ctx ends. It returns when
// everything it started has ended.
func (s *Server) ServeAdmin(ctx context.Context, l net.Listener) error {
	srv := s.http(s.admin, s.cfg.Limits.ReadBody)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminPatience)
	defer cancel()
	s.admin.Drain()
	err := srv.Shutdown(patience)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close() // an export or a profile is not worth the wait
	}
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// buildAdmin builds the admin listener's surface over the rest.
func (s *Server) buildAdmin() (err error) {
	s.admin, err = admin.New(admin.Config{
		Identifier: s, Runs: s.store, Records: s.store, Ledger: s.store, Keys: s.store, Calls: switchboard{s}, Agents: directory{s}, Interrupts: inbox{s},
		Figures: s.store, Actions: s.store, Driver: driver{s}, Caps: s.caps, Vitals: s.vitals,
		Budgets:  func() []agentbus.Budget { return s.now().gateway.Budgets(time.Now()) },
		MaxDepth: func() int { return s.now().cfg.Limits.MaxDepth }, Cap: s.CapOf, Hops: s.VerifyHops, Content: s.cfg.Admin.Content,
		Token: s.cfg.Admin.Token, Metrics: s.Metrics(), Profile: s.cfg.Admin.Pprof, Logger: s.log,
		Status: admin.Status{Version: s.cfg.Version, Owner: s.owner, Config: s.cfg.Path, Stages: s.now().gateway.Stages()},
	})
	return err
}

// CapOf returns what an execution may cost: as it was begun, else as its
// conversation says; 0: any amount.
func (s *Server) CapOf(e agentbus.Execution) agentbus.Micros {
	var sp spec
	if json.Unmarshal(e.Spec, &sp) == nil && sp.Budget != nil {
		return *sp.Budget
	}
	if c, ok := s.now().cfg.Conversations[e.Conversation]; ok && c.BudgetUSD != nil {
		return *c.BudgetUSD
	}
	return 0
}

// A switchboard is the calls of a bus that have not ended. Live and Stop are the
// Server's.
type switchboard struct{ *Server }

// Unfinished returns the calls that nobody has settled or voided.
func (b switchboard) Unfinished(ctx context.Context) ([]agentbus.CallRecord, error) {
	return b.store.Unfinished(ctx)
}

// StoppedRuns returns the runs that were stopped.
func (b switchboard) StoppedRuns(ctx context.Context) ([]agentbus.RunID, error) {
	return b.store.StoppedRuns(ctx)
}

// Void frees the key of a call whose process is gone (G24).
func (b switchboard) Void(ctx context.Context, id int64, by string) error {
	calls, err := b.store.Unfinished(ctx)
	if err != nil {
		return err
	}
	for i := range calls {
		if c := &calls[i]; c.ID == id {
			if b.alive(c.Owner) {
				return &agentbus.Error{
					Code: agentbus.CodeRunConflict, Message: "call " + strconv.FormatInt(id, 10) + " is being executed: its outcome is not unknown yet",
					Explain: &agentbus.Explain{Rule: "G24", Observed: c.Owner, Next: "wait for it, or stop its run"},
				}
			}
			return b.store.Void(ctx, agentbus.Voiding{
				ID: id, Attempt: c.Attempts, Code: agentbus.CodeOutcomeUnknown, Message: "its process ended, and " + by + " freed its key", Ended: time.Now().UTC(),
			})
		}
	}
	return &agentbus.Error{
		Code: agentbus.CodeNotFound, Message: "there is no call " + strconv.FormatInt(id, 10) + " without an end",
		Explain: &agentbus.Explain{Next: "see GET /admin/v1/calls/unfinished"},
	}
}
