package httpx_test

import (
	"testing"

	"github.com/agentbus/agentbus/internal/httpx"
)

func TestLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.1": true, "::1": true, "::ffff:127.0.0.1": true, "localhost": true, "LocalHost": true,
		"": false, "[::1]": false, "bus.localhost": false, "localhost.": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "localhost.example.com": false, "127.0.0.1.example.com": false, "notlocalhost": false, "0x7f.1": false,
	} {
		if got := httpx.Loopback(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}
