package sqlite_test

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/store/sqlite"
)

// settleInOrder settles calls, one after the other, and says each.
func settleInOrder(s *sqlite.Store, name string) error {
	for n := 0; ; n++ {
		got, err := s.Reserve(background, request(agentbus.RunID(name), n, "x"))
		if err != nil {
			return err
		}
		if err := s.Settle(background, answer(got.Call, text(agentbus.RunID(name), n))); err != nil {
			return err
		}
		say("%d", n)
	}
}

// killed returns the file and the log of a store whose process was killed, and
// the last call that it acknowledged.
func killed(t *testing.T) (file, log []byte, last int) {
	t.Helper()
	dir := t.TempDir()
	cmd, out := start(t, "settle in order", dir, "run_a")
	for out.Scan() && last < 150 {
		var err error
		if last, err = strconv.Atoi(out.Text()); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for out.Scan() {
		last, _ = strconv.Atoi(out.Text())
	}
	_ = cmd.Wait() // it was killed
	path := filepath.Join(dir, "bus.db")
	return read(t, path), read(t, path+"-wal"), last
}

// I1, I2: writes that never reached the disk, torn ones and flipped bits in the
// tail of the log leave what was written before them, whole calls only, or are
// refused. Nothing is guessed.
func TestADamagedTailLeavesAPrefix(t *testing.T) { //nolint:tparallel // they share a random source
	t.Parallel()
	file, log, last := killed(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for name, damage := range map[string]func([]byte) []byte{
		"nothing":      func(b []byte) []byte { return b },
		"no log":       func([]byte) []byte { return nil },
		"cut":          func(b []byte) []byte { return b[:random.IntN(len(b))] },
		"cut, garbage": func(b []byte) []byte { return append(b[:random.IntN(len(b))], bytes.Repeat([]byte{0xa5}, 5000)...) },
		"flipped bit": func(b []byte) []byte {
			b[random.IntN(len(b))] ^= 1 << random.IntN(8)
			return b
		},
		"lost write": func(b []byte) []byte {
			at := random.IntN(len(b))
			clear(b[at:min(at+4096, len(b))])
			return b
		},
		"write of another place": func(b []byte) []byte {
			const header, frame = 32, 24 + 4096
			frames := (len(b) - header) / frame
			to, from := random.IntN(frames), random.IntN(frames)
			copy(b[header+to*frame:][:frame], bytes.Clone(b[header+from*frame:][:frame]))
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 6 {
				dir := t.TempDir()
				written(string(file))(t, filepath.Join(dir, "bus.db"))
				written(string(damage(bytes.Clone(log))))(t, filepath.Join(dir, "bus.db-wal"))
				if n := checkPrefix(t, dir); name == "nothing" && n <= last {
					t.Errorf("call %d was acknowledged, and %d are there", last, n)
				}
			}
		})
	}
}

// checkPrefix opens the store in dir and returns how many calls are settled,
// which must be the first ones.
func checkPrefix(t *testing.T, dir string) (settled int) {
	t.Helper()
	s := opened(t, dir)
	defer closed(t, s)
	calls, err := s.Calls(t.Context(), "run_a")
	if err != nil {
		t.Fatal(err)
	}
	for n, c := range calls {
		if c.State == agentbus.CallExecuting && n == len(calls)-1 {
			break
		}
		got, found, err := s.Lookup(t.Context(), request("run_a", n, "x").Key, agentbus.Digest{})
		if err != nil || !found || got.Outcome != agentbus.OutcomeSettled || string(got.Reply.Body) != text("run_a", n) {
			t.Errorf("call %d of %d: outcome %v, %v", n, len(calls), got.Outcome, err)
		}
		settled++
	}
	v, err := s.VerifyLedger(t.Context())
	if err != nil || v.Fault != "" || v.Entries != int64(settled) {
		t.Errorf("%d settled calls, the ledger: %+v, %v", settled, v, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	checkIntegrity(t, dir)
	return settled
}
