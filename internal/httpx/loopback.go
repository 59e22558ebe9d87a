package httpx

import (
	"net/netip"
	"strings"
)

// Loopback reports whether host, without a port, is this machine: an address of
// its loopback, or localhost. What stays there may go in plain text (P24).
func Loopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}
