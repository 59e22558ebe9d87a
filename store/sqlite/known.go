package sqlite

import (
	"sync"

	"github.com/agentbus/agentbus"
)

// asker asks the one thing that a storm of refusals asks, whether a key is known,
// on a connection of its own: to share one through database/sql costs more than
// the answer. It is safe for concurrent use.
type asker struct {
	mu   sync.Mutex
	conn *conn // nil once it is closed
}

func openAsker(dsn string) (*asker, error) {
	c, err := dial(dsn + "&_pragma=cache_size(-4096)&_pragma=query_only(1)")
	if err != nil {
		return nil, err
	}
	return &asker{conn: c}, nil
}

// knows reports whether a key stands for a call.
func (a *asker) knows(key agentbus.Digest) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn == nil {
		return false, errClosed
	}
	_, found, err := a.conn.first("SELECT 1 FROM calls WHERE key = ?1", key[:])
	return found, err
}

func (a *asker) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn == nil {
		return nil
	}
	c := a.conn
	a.conn = nil
	return c.close()
}
