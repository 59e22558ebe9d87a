package agentbus

import (
	"net/http"
	"time"
)

// A Recording is what was asked of a call, and the headers of the protocol that
// it came and went on with: what people read who want to know why an agent
// answered as it did, where the operator has requests recorded (U11). Nothing is
// decided by it. Credentials were taken out before it was made.
type Recording struct {
	Attempt int       // the attempt that it is of; set by the store
	At      time.Time // when that began; set by the store
	// Body is the body of the request as the caller sent it, or its beginning
	// when Cut. "" with a Size: it was no text, and is not kept.
	Body string
	Cut  bool
	Size int64 // bytes of the body as it came
	// In are the headers of the protocol as they came, and underscore twins of
	// them (P5). Out are those that went on to the agent; nil: nothing did so far.
	In, Out http.Header
}
