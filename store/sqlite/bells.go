package sqlite

import (
	"sync"

	"github.com/agentbus/agentbus"
)

// bells tell those who follow an execution that events came. There is one for
// each execution that somebody follows, however many do.
type bells struct {
	mu    sync.Mutex // guards rooms
	rooms map[agentbus.ExecutionID]*bell
}

type bell struct {
	rung  chan struct{} // closed with the next events
	users int
}

// Watch returns a channel that is closed once events of an execution were
// appended by this process after the call. Call release when it is not waited
// for any more. Another process's events ring nothing: look from time to time.
func (s *Store) Watch(id agentbus.ExecutionID) (rung <-chan struct{}, release func()) {
	b := &s.bells
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.rooms[id]
	if room == nil {
		if b.rooms == nil {
			b.rooms = map[agentbus.ExecutionID]*bell{}
		}
		room = &bell{rung: make(chan struct{})}
		b.rooms[id] = room
	}
	room.users++
	return room.rung, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if room.users--; room.users == 0 && b.rooms[id] == room {
			delete(b.rooms, id)
		}
	}
}

func (b *bells) ring(id agentbus.ExecutionID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := b.rooms[id]; room != nil {
		close(room.rung)
		delete(b.rooms, id)
	}
}

// rang rings for events that were appended, if they were.
func (s *Store) rang(id agentbus.ExecutionID, events []agentbus.Event, err error) {
	if err == nil && len(events) > 0 {
		s.bells.ring(id)
	}
}
