package agentbus

import "time"

// RemoteTaskAge is how long a task of an A2A agent is remembered after it was
// last seen (A12).
const RemoteTaskAge = 7 * 24 * time.Hour

// A RemoteTask says where a task of an A2A agent is, and whose (A12). Agent and
// ID are its key; who it belongs to never changes.
type RemoteTask struct {
	Agent    string
	ID       string    // as the agent calls it
	Upstream string    // which of the agent's URLs has it
	Payer    Payer     // whose it is
	Context  string    // the A2A context it belongs to; "" when it told none
	Seen     time.Time // when it was last seen
}
