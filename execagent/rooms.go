package execagent

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
)

// workerKey names who serves a conversation: HMAC-SHA-256 under the install key
// of payer, agent and root context, each behind its length (B4, K10). The root
// alone selects nothing. Without a root, the run is the conversation (K3).
func workerKey(installKey []byte, payer agentbus.Payer, agent string, l agentbus.Lineage) string {
	m := hmac.New(sha256.New, installKey)
	for _, s := range [...]string{"worker", string(payer), agent, cmp.Or(l.RootContext, string(l.Run))} {
		m.Write(binary.AppendUvarint(nil, uint64(len(s))))
		m.Write([]byte(s))
	}
	return hex.EncodeToString(m.Sum(nil)[:16])
}

// rooms are the working directories of a program.
type rooms struct {
	root   string
	shared bool // there is one, root
	age    time.Duration
	swept  atomic.Int64 // when old ones were last removed, as Unix seconds
}

const (
	keptPrefix = "c-" // of a conversation's
	oncePrefix = "t-" // of a turn's
)

// enter returns the working directory of a conversation, or an empty one when
// key is "", and what to do once the turn is over.
func (r *rooms) enter(key string) (dir string, leave func(), err error) {
	if err := os.MkdirAll(r.root, 0o700); err != nil {
		return "", nil, fmt.Errorf("make the directory of programs: %w", err)
	}
	switch {
	case r.shared:
		return r.root, func() {}, nil
	case key == "":
		dir, err = os.MkdirTemp(r.root, oncePrefix)
		return dir, func() { _ = os.RemoveAll(dir); r.sweep(time.Now()) }, err // what is left is swept
	}
	dir = filepath.Join(r.root, keptPrefix+key)
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return "", nil, err
	}
	touch := func() { _ = os.Chtimes(dir, time.Time{}, time.Now()) }
	touch()
	return dir, func() { touch(); r.sweep(time.Now()) }, nil
}

// sweep removes the directories that nobody has used for long, now and then. A
// turn that is over pays for it.
func (r *rooms) sweep(now time.Time) {
	last := r.swept.Load()
	if now.Unix()-last < int64(min(r.age/10, time.Hour)/time.Second) || !r.swept.CompareAndSwap(last, now.Unix()) {
		return
	}
	entries, err := os.ReadDir(r.root)
	if err != nil {
		return // the next turn says so
	}
	for _, e := range entries {
		ours := strings.HasPrefix(e.Name(), keptPrefix) || strings.HasPrefix(e.Name(), oncePrefix)
		if info, err := e.Info(); err == nil && ours && e.IsDir() && now.Sub(info.ModTime()) > r.age {
			_ = os.RemoveAll(filepath.Join(r.root, e.Name())) // or the next time
		}
	}
}

// Dir returns where the working directories of the program are.
func (a *Agent) Dir() string { return a.rooms.root }
