package execagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// SessionPlaceholder stands in the arguments of a [Session] for its id.
const SessionPlaceholder = "{session}"

// A Session is how a program that keeps its conversations itself is told which
// one a turn belongs to (B4).
type Session struct {
	// First are arguments of the first turn of a conversation, Next those of the
	// turns after it; they stand behind the Command. In each the placeholder is
	// replaced by the id of the session, which is a UUID, unless the program has
	// told another one, see [Fields.Session].
	First, Next []string
}

func (s Session) isZero() bool { return len(s.First) == 0 && len(s.Next) == 0 }

func (s Session) check() error {
	mentions := func(args []string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, SessionPlaceholder) })
	}
	switch {
	case s.isZero():
		return nil
	case !mentions(s.Next):
		return errors.New("Session.Next does not name the session: " + SessionPlaceholder)
	case slices.ContainsFunc(slices.Concat(s.First, s.Next), func(a string) bool { return strings.ContainsRune(a, 0) }):
		return errors.New("Session holds a NUL")
	}
	return nil
}

// sessions are the conversations that a program keeps. What is known of each is
// a file in dir: a bus that starts again goes on with them.
type sessions struct {
	Session

	dir        string
	installKey []byte
	age        time.Duration

	mu    sync.Mutex
	swept time.Time
}

// known is what is known of a conversation.
type known struct {
	Begun int    `json:"begun"`             // how often a session of it was begun
	ID    string `json:"session,omitempty"` // that the last turn was served in; "" after one that failed
}

// maxKnown is more than what is known takes.
const maxKnown = 1 << 10

// A session is what a turn is served in; nil when the program keeps none.
type session struct {
	of   *sessions
	file string
	known
	resumes bool
}

// begin returns the session of a conversation: the one that its last turn was
// served in, else a new one. Until it is kept, it counts as lost: a turn that
// fails, or that is cut off with the bus, can have left anything in it.
func (s *sessions) begin(key string) (*session, error) {
	if s.isZero() {
		return nil, nil //nolint:nilnil // the program keeps none
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of sessions: %w", err)
	}
	n := &session{of: s, file: filepath.Join(s.dir, key)}
	if info, err := os.Lstat(n.file); err == nil && info.Mode().IsRegular() && info.Size() < maxKnown {
		text, _ := os.ReadFile(n.file)
		_ = json.Unmarshal(text, &n.known) // what cannot be read is not known
	}
	if n.resumes = sessionRE.MatchString(n.ID); !n.resumes {
		n.Begun++
		n.ID = uuid(keyed(s.installKey, "session", key, strconv.Itoa(n.Begun)))
	}
	return n, n.save("")
}

// uuid writes 16 bytes as a UUID of version 4, which is what programs take.
func uuid(b []byte) string {
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// sessionRE is what an id can be that a program tells: no flag, and no path.
var sessionRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// arguments are those of the turn.
func (n *session) arguments() (args []string) {
	if n == nil {
		return nil
	}
	of := n.of.First
	if n.resumes {
		of = n.of.Next
	}
	for _, a := range of {
		args = append(args, strings.ReplaceAll(a, SessionPlaceholder, n.ID))
	}
	return args
}

// keep notes that the turn was served: the next one goes on with its session,
// under the id that the program told, if it did. Without one, only a program
// that was given an id knows it.
func (n *session) keep(told string) error {
	if n == nil {
		return nil
	}
	id := n.ID
	if !n.resumes && !strings.Contains(strings.Join(n.of.First, " "), SessionPlaceholder) {
		id = ""
	}
	if sessionRE.MatchString(told) {
		id = told
	}
	n.of.sweep(time.Now())
	return n.save(id)
}

func (n *session) save(id string) error {
	text, err := json.Marshal(known{n.Begun, id})
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(n.of.dir, "new-") // a program that shares the directory cannot lead us elsewhere
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), n.file)
	}
	if err != nil {
		_ = os.Remove(next.Name()) // or it is swept
	}
	return err
}

// sweep forgets the sessions that nobody has used for long, now and then.
func (s *sessions) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) < min(s.age/10, time.Hour) {
		return
	}
	s.swept = now
	entries, _ := os.ReadDir(s.dir) // the next turn says what is wrong
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > s.age {
			_ = os.Remove(filepath.Join(s.dir, e.Name())) // or the next time
		}
	}
}
