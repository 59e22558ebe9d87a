package gateway

import (
	"context"

	"github.com/agentbus/agentbus"
)

// RemoteTasks remember where the tasks of A2A agents are, and whose (A12). They
// are safe for concurrent use; their errors are CodeStoreUnavailable.
type RemoteTasks interface {
	// RemoteTask returns what is known of a task, if it was seen within
	// RemoteTaskAge.
	RemoteTask(ctx context.Context, agent, id string) (t agentbus.RemoteTask, found bool, err error)
	// RemoteContext returns the task of a payer that was seen last in a context.
	RemoteContext(ctx context.Context, agent string, payer agentbus.Payer, id string) (t agentbus.RemoteTask, found bool, err error)
	// SeeRemoteTask stores that a task was seen. A task that is known as another
	// payer's stays as it is. It is durable when it returns.
	SeeRemoteTask(ctx context.Context, t agentbus.RemoteTask) error
}
