//go:build !unix

package httpx

import "net"

// stillOpen cannot look without reading here, so no connection is used twice.
func stillOpen(net.Conn) bool { return false }
