package execagent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// workerKey names who serves a conversation: HMAC-SHA-256 under the install key
// of payer, agent and root context, each behind its length (B4, K10). The root
// alone selects nothing. It is the one that the program's own calls carry (K2).
func (a *Agent) workerKey(payer agentbus.Payer, l agentbus.Lineage) string {
	_, root := l.Contexts(l.Session(), !a.config.NoLegacyParent)
	return hex.EncodeToString(keyed(a.config.InstallKey, "worker", string(payer), a.config.Name, root))
}

// keyed returns 16 bytes of the HMAC of words.
func keyed(installKey []byte, words ...string) []byte {
	d := agentbus.Keyed(installKey, words...)
	return d[:16]
}

// rooms are the working directories of a program.
type rooms struct {
	root   string
	tag    string // of the agent, in the names of its own: others may have theirs in the same root
	shared bool   // there is one, root
	age    time.Duration

	mu    sync.Mutex
	inUse map[string]int // who is in each; none of these is removed
	swept time.Time      // when old ones were last removed
}

const (
	keptPrefix = "c-" // of a conversation's
	oncePrefix = "t-" // of a turn's
	oldPrefix  = "x-" // of one that is being removed
)

// tagOf names an agent in names of files.
func tagOf(agent string) string {
	sum := sha256.Sum256([]byte(agent))
	return hex.EncodeToString(sum[:4])
}

// A room is a working directory that somebody is in.
type room struct {
	of  *rooms
	dir string
}

// enter returns the working directory of a conversation, or an empty one when
// key is "". Leave it.
func (r *rooms) enter(key string) (*room, error) {
	if err := os.MkdirAll(r.root, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of programs: %w", err)
	}
	if r.shared {
		return &room{r, r.root}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	dir, err := r.make(key)
	if err != nil {
		return nil, err
	}
	if r.inUse == nil {
		r.inUse = map[string]int{}
	}
	r.inUse[dir]++
	at := &room{r, dir}
	at.touch()
	return at, nil
}

func (r *rooms) make(key string) (string, error) {
	if key == "" {
		return os.MkdirTemp(r.root, oncePrefix+r.tag+"-")
	}
	dir := filepath.Join(r.root, keptPrefix+r.tag+"-"+key)
	err := os.Mkdir(dir, 0o700)
	if !os.IsExist(err) {
		return dir, err
	}
	// What stands there may be no directory, or a link to one: a program can have left it.
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s is no directory of ours: %w", dir, cmp.Or(err, fs.ErrExist))
	}
	return dir, nil
}

// touch says that the room is in use, also to other buses.
func (at *room) touch() {
	if !at.of.shared {
		_ = os.Chtimes(at.dir, time.Time{}, time.Now()) // then it is as old as its last change
	}
}

// leave leaves the room: that of a turn is removed. Now and then old ones are,
// too: whoever leaves pays for it.
func (at *room) leave() {
	r := at.of
	if r.shared {
		return
	}
	at.touch()
	r.mu.Lock()
	if r.inUse[at.dir]--; r.inUse[at.dir] == 0 {
		delete(r.inUse, at.dir)
	}
	r.mu.Unlock()
	if strings.HasPrefix(filepath.Base(at.dir), oncePrefix) {
		removeAll(at.dir) // what is left is swept
	}
	for _, old := range r.old(time.Now()) {
		removeAll(old)
	}
}

// old takes the rooms that nobody has used for long out of use, now and then.
func (r *rooms) old(now time.Time) (old []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.swept) < min(r.age/10, time.Hour) {
		return nil
	}
	r.swept = now
	entries, _ := os.ReadDir(r.root) // the next turn says what is wrong
	for _, e := range entries {
		dir := filepath.Join(r.root, e.Name())
		info, err := e.Info()
		if err != nil || !e.IsDir() || r.inUse[dir] > 0 || now.Sub(info.ModTime()) <= r.age {
			continue
		}
		switch name := e.Name(); {
		case strings.HasPrefix(name, keptPrefix+r.tag), strings.HasPrefix(name, oncePrefix+r.tag):
			gone := filepath.Join(r.root, oldPrefix+name)
			if os.Rename(dir, gone) == nil { // from now on nobody enters it
				old = append(old, gone)
			}
		case strings.HasPrefix(name, oldPrefix+keptPrefix+r.tag), strings.HasPrefix(name, oldPrefix+oncePrefix+r.tag): // of a bus that was killed
			old = append(old, dir)
		}
	}
	return old
}

// removeAll removes a directory, also what was made read-only in it. Links are
// not followed.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // a directory that is to be removed
		}
		return nil
	})
	_ = os.RemoveAll(dir) // or the next time
}

// Dir returns where the working directories of the program are.
func (a *Agent) Dir() string { return a.rooms.root }
