package agentbustest

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/internal/woptest"
	"github.com/agentbus/agentbus/server"
)

// maxReplays is how many runs of a bus are replayed, the newest ones.
const maxReplays = 1000

// Replay replays the runs of conversations that a bus has driven, the newest
// thousand, and those that it has answered calls with, against what its store
// holds of them. It fails the test for one that is not made again byte for byte,
// such as one whose plan is not a function of its turns alone (R3), for a replay
// that called an agent (R23), and for an event that is not valid on the event
// wire. Runs of a definition that the bus has no more, those that others drove over
// its store, and those whose events are no longer kept are passed over. The runs
// must have halted, and the test may have ended.
func Replay(t T, s *server.Server) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	runs, err := s.Store().RunSummaries(ctx, agentbus.RunFilter{}, maxReplays, "")
	if err != nil {
		t.Errorf("agentbustest: read the runs: %v", err)
	}
	for i := range runs {
		if err := told(ctx, t, s, runs[i].Run); err != nil && agentbus.CodeOf(err) != agentbus.CodeReplyExpired {
			t.Errorf("agentbustest: read the events of run %s: %v", runs[i].Run, err)
		}
		if err := replay(ctx, t, s, runs[i].Run); err != nil {
			t.Errorf("agentbustest: replay run %s: %v", runs[i].Run, err)
		}
	}
}

// told holds what is told of a run to the event wire: every event is valid there, its
// sequence is dense, and its end comes once and last (E1, E9, E10, E24).
func told(ctx context.Context, t T, s *server.Server, run agentbus.RunID) error {
	t.Helper()
	executions, err := s.Store().Executions(ctx, run)
	if err != nil {
		return err
	}
	for i := range executions {
		var events []map[string]any
		for e, err := range s.Store().Events(ctx, executions[i].ID, -1) {
			if err != nil {
				return err
			}
			raw, err := json.Marshal(eventlog.Document(&e))
			if err != nil {
				return err
			}
			var doc map[string]any
			if err := json.Unmarshal(raw, &doc); err != nil {
				return err
			}
			events = append(events, doc)
		}
		woptest.Load(t).Events(t, events)
	}
	return nil
}

// replay replays one run. It returns why that could not be done.
func replay(ctx context.Context, t T, s *server.Server, run agentbus.RunID) error {
	t.Helper()
	executions, err := s.Store().Executions(ctx, run)
	if err != nil || len(executions) == 0 {
		return err
	}
	before, err := s.Store().Calls(ctx, run)
	if err != nil {
		return err
	}
	replays, err := s.Replay(ctx, run)
	switch agentbus.CodeOf(err) {
	case "", agentbus.CodeRunConflict, agentbus.CodeInvalidRequest, agentbus.CodeReplyExpired:
	default:
		return err
	}
	for _, r := range replays {
		if r.Divergence != nil {
			t.Errorf("agentbustest: the replay of run %s diverges: %s", run, r.Divergence)
		}
	}
	after, err := s.Store().Calls(ctx, run)
	if err == nil && asked(after) != asked(before) {
		err = errors.New("it called an agent")
	}
	return err
}

// asked counts how often the ledger was asked for calls.
func asked(calls []agentbus.CallRecord) (n int) {
	for i := range calls {
		n += calls[i].Attempts + calls[i].Replays + calls[i].Repeats
	}
	return n
}
