package agentbus

import (
	"slices"
	"strconv"
	"time"
)

// A Hop is one step of a chain of agents as the bus that made it has signed it
// (C16): who called whom, for whom, and on what is left.
type Hop struct {
	Issuer      string   `json:"iss"`
	Audience    string   `json:"aud"` // the agent that is called
	Subject     string   `json:"sub"` // for whom, and who pays: the root principal
	Issued      int64    `json:"iat"` // seconds since 1970, as Expires
	Expires     int64    `json:"exp"`
	ID          string   `json:"jti"`
	Chain       string   `json:"txn"` // the id of the whole chain
	RootContext string   `json:"root_ctx,omitempty"`
	Parent      string   `json:"parent_ctx,omitempty"`
	Hop         int      `json:"hop"`
	MaxHops     int      `json:"max_hops"`
	Path        []string `json:"path"`          // who called, from the first on; as many as Hop
	Before      string   `json:"prv,omitempty"` // SHA-256 of the token before it, in hex; "": it is the first
	Left        HopLeft  `json:"budget_left"`
	MessageID   string   `json:"mid,omitempty"`
	// Actor is who acts for Subject, as RFC 8693 writes it: the Path, from its last
	// on; nil: the issuer does not say.
	Actor *HopActor `json:"act,omitempty"`
}

// A HopActor is who acts, and for whom it does.
type HopActor struct {
	Subject string    `json:"sub"`
	Actor   *HopActor `json:"act,omitempty"` // who called it; nil: it was the first
}

// ActorOf returns the actor of a path; nil: it is empty.
func ActorOf(path []string) (a *HopActor) {
	for _, who := range path {
		a = &HopActor{Subject: who, Actor: a}
	}
	return a
}

// Says reports whether a names those of a path, and nobody else.
func (a *HopActor) Says(path []string) bool {
	for _, who := range slices.Backward(path) {
		if a == nil || a.Subject != who {
			return false
		}
		a = a.Actor
	}
	return a == nil
}

// HopID returns the id of a hop of the call that was made as request: a message that
// is sent again, as its nth, has one of its own, since each counts once.
func HopID(request string, nth int) string {
	if nth <= 1 {
		return request
	}
	return request + "." + strconv.Itoa(nth)
}

// NoteHopSigned is what the record of a settled call says whose hop was signed.
const NoteHopSigned = "hop_signed"

// A HopLeft is what may be spent from a hop on.
type HopLeft struct {
	Calls    int64  `json:"calls,omitempty"`
	USD      Micros `json:"usd_micros,omitempty"`
	Deadline int64  `json:"deadline,omitempty"` // seconds since 1970
}

// A HopToken is a signed hop as it was kept with its call.
type HopToken struct {
	Run       RunID     `json:"run"`
	RequestID string    `json:"request_id"` // of the call
	Sent      bool      `json:"sent"`       // to the agent, or made for it where no message went; else it was received
	Token     string    `json:"token"`
	At        time.Time `json:"at"`
}

// A HopFor is what a signed hop must fit.
type HopFor struct {
	Audiences []string // of the agent that is called
	Sender    string   // the principal that sent it, as it was authenticated
	MessageID string   // of an A2A message; "": there is none
	MaxHops   int      // here
	Plain     *AgentChain
	// Known are the agents and endpoints that the path must not hold (C12); none
	// are looked for when it is nil.
	Known []string
}

// A NextHop says which hop is to be signed.
type NextHop struct {
	ID                   string // of the hop, a HopID; "": one is made up
	Audience             string // of the agent that is called
	Caller               string // the principal that calls
	Payer                Payer
	Chain                AgentChain // as the agent is told
	Run                  RunID
	RootContext, Context string
	MessageID            string
	Left                 HopLeft
	Before               string // the token of the hop before; "": there is none
}
