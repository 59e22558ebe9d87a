package agentbus

import "time"

// An Action is what an operator did, or was refused, on the admin listener (U5).
// Actions are never changed.
type Action struct {
	ID        int64     `json:"id"` // set by the store; later ones have greater ids
	At        time.Time `json:"at"`
	By        string    `json:"by"`               // the principal; "" for a request that nobody stood for
	Kind      string    `json:"kind"`             // what was done, such as run.stop or agent.drain
	Object    string    `json:"object,omitempty"` // what it was done to: a run, an interrupt, an agent …
	Run       RunID     `json:"run,omitempty"`    // of which run it is an event; "": of none
	Detail    string    `json:"detail,omitempty"` // how, such as granted
	Code      Code      `json:"code,omitempty"`   // why it was refused; "": it was done
	RequestID string    `json:"request_id,omitempty"`
}

// An ActionQuery says which actions are read, newest first.
type ActionQuery struct {
	Run    RunID  // "": of any run, and of none
	Object string // "": of any
	Before int64  // the last id of the page before; 0: from the newest
	Limit  int
}

// A Drained is an agent that an operator has taken out: it gets no new calls
// until it is enabled again.
type Drained struct {
	Agent string    `json:"agent"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
}
