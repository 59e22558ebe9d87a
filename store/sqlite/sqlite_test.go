package sqlite_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/store/sqlite"
	"github.com/agentbus/agentbus/store/storetest"
)

// background is for what outlives the test that started it.
var background = context.Background()

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(beChild(role))
	}
	goleak.VerifyTestMain(m)
}

// opened opens the store in dir.
func opened(tb testing.TB, dir string) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), sqlite.Config{Path: sqlitetest.Prepare(tb, filepath.Join(dir, "bus.db"))})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// closed closes c, which must succeed.
func closed(tb testing.TB, c io.Closer) {
	tb.Helper()
	if err := c.Close(); err != nil {
		tb.Error(err)
	}
}

func TestPromises(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, dir string) storetest.Store {
		t.Helper()
		return opened(t, dir)
	})
}

// The same promises hold for a store in memory.
func TestPromisesInMemory(t *testing.T) {
	t.Parallel()
	storetest.RunInMemory(t, func(t *testing.T) storetest.Store {
		t.Helper()
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: ":memory:"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// request is the n-th call of run.
func request(run agentbus.RunID, n int, owner string) agentbus.Reservation {
	key := agentbus.TurnKey{Payer: "user:alice", Agent: "critic", Run: run, ID: run.Turn(n, "critic")}
	return agentbus.Reservation{Key: key.Hash(), Call: agentbus.CallRecord{
		TurnKey: key, RequestID: "req_" + strconv.Itoa(n), Caller: "user:alice", Depth: 1, Owner: owner, Began: time.Now(),
	}}
}

// answer settles c.
func answer(c agentbus.CallRecord, body string) agentbus.Settlement {
	return agentbus.Settlement{
		ID: c.ID, Attempt: c.Attempts, Cost: 4_000, Ended: time.Now(),
		Reply: agentbus.StoredReply{Status: 200, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte(body)},
	}
}

// intent is the n-th turn of e.
func intent(e agentbus.Execution, n int) agentbus.Turn {
	return agentbus.Turn{
		TurnKey:   agentbus.TurnKey{Payer: "user:alice", Agent: "critic", Run: e.Run, ID: e.Run.Turn(n, "critic")},
		Execution: e.ID, Index: n, Speaker: "critic", Digest: agentbus.Digest{byte(n)}, Epoch: e.Lease.Epoch, Began: time.Now(),
	}
}
