package agentbus

import (
	"net/http"
	"time"
)

// A Recording is what was asked of a call and what was answered, and the headers
// of the protocol that it came and went on with: what people read who want to
// know why an agent answered as it did, where the operator has calls recorded
// (U11). Nothing is decided by it. Credentials were taken out before it was made.
type Recording struct {
	Attempt      int       // the attempt that it is of; set by the store
	At           time.Time // when that began; set by the store
	RecordedBody           // of the request, as the caller sent it
	// In are the headers of the protocol as they came, and underscore twins of
	// them (P5). Out are those that went on to the agent; nil: nothing did so far.
	In, Out http.Header
	// Answer is what the caller was answered, or what had come of an answer that
	// does not count; nil: none has come so far. Set by the store as the attempt
	// ends: see Settlement and Voiding.
	Answer *RecordedBody
}

// A RecordedBody is a body as far as it is kept.
type RecordedBody struct {
	// Body is its text, or the beginning of that when Cut. "" with a Size: it was
	// no text that credentials could be taken out of, and is not kept.
	Body string
	Cut  bool
	Size int64 // bytes of it as it came
}
