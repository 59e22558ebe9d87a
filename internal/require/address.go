package require

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports that systems give to whoever asks for any begin at 32768.
const (
	firstPort = 10_000
	lastPort  = 32_767
)

var given sync.Map // the ports that Address has returned

// Address returns an address of this machine where nobody listens, for a server that
// is told where to listen, or to which nobody must come. No other address is given
// twice, and none that the system hands out: another test could be handed it first.
func Address(tb testing.TB) string {
	tb.Helper()
	for {
		port := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // it need not be hard to guess
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
		if err != nil {
			continue // somebody is there
		}
		_ = l.Close()
		if _, twice := given.LoadOrStore(port, true); !twice {
			return address
		}
	}
}
