package httpx

import (
	"net/netip"
	"strings"
)

// Loopback reports whether host, without a port, is this machine by its name
// alone: a loopback address, with or without brackets, or localhost. Nothing is
// looked up.
func Loopback(host string) bool {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
