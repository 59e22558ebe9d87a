package admin

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

const (
	streamPause = 500 * time.Millisecond // between two looks for a change
	streamBeat  = 15 * time.Second       // between two signs of life
	maxStreams  = 64                     // at once
)

// streams are the live pages that are open. The zero value has none.
type streams struct {
	mu     sync.Mutex // guards open and ending
	open   int
	ending chan struct{} // closed when they are to end
}

// Drain ends the live pages that are open, and those that come: their browsers
// come back to whoever serves then.
func (a *API) Drain() {
	s := &a.streams
	s.mu.Lock()
	defer s.mu.Unlock()
	ending := s.end()
	select {
	case <-ending:
	default:
		close(ending)
	}
}

// end returns ending; s.mu is held.
func (s *streams) end() chan struct{} {
	if s.ending == nil {
		s.ending = make(chan struct{})
	}
	return s.ending
}

// enter takes the place of a stream, until leave.
func (s *streams) enter() (ending <-chan struct{}, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= maxStreams {
		return nil, nil, &agentbus.Error{
			Code: agentbus.CodeOverloaded, Message: "too many pages follow what happens", RetryAfter: 10 * time.Second,
			Explain: &agentbus.Explain{Rule: "U4", Limit: maxStreams, Next: "close some, or reload this one by hand"},
		}
	}
	s.open++
	return s.end(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}, nil
}

func wantsStream(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream")
}

// A mark is what a live page shows now, in a word that changes with it, and
// whether nothing will change any more.
type mark func(ctx context.Context) (version string, over bool, err error)

// follow tells a live page when what it shows has changed (U4). The id of an
// event is the version that the page is told of. A page says which version it
// shows, by last in its query or, when it comes back, by Last-Event-ID: it is told
// at once when it missed something.
func (a *API) follow(w http.ResponseWriter, r *http.Request, look mark) error {
	ending, leave, err := a.streams.enter()
	if err != nil {
		return err
	}
	defer leave()
	version, over, err := look(r.Context())
	if err != nil {
		return err
	}
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the request was read: nothing more is waited for
	w.Header().Set("Content-Type", "text/event-stream")
	last := cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("last"))
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(streamBeat))
		_, err := io.WriteString(w, text)
		return err == nil && out.Flush() == nil
	}
	tell := func(kind string) bool { return send("event: " + kind + "\nid: " + version + "\ndata: {}\n\n") }
	if !send("retry: 1000\n\n") || last != version && !tell("changed") {
		return nil
	}
	pause := time.NewTicker(streamPause)
	defer pause.Stop()
	for beat := time.Now(); !over; {
		select {
		case <-r.Context().Done():
			return nil
		case <-ending:
			return nil
		case <-pause.C:
		}
		before := version
		if version, over, err = look(r.Context()); err != nil {
			return nil //nolint:nilerr // the answer has begun; the browser comes back and reads why
		}
		switch {
		case version != before:
			if !tell("changed") {
				return nil
			}
			beat = time.Now()
		case time.Since(beat) > streamBeat:
			if !send(": here\n\n") {
				return nil
			}
			beat = time.Now()
		}
	}
	tell("over")
	return nil
}
