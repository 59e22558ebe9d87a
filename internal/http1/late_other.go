//go:build !unix

package http1

import "net"

// A lateReader is what reads without holding room: not here.
type lateReader struct{}

func lateFrom(net.Conn, *input) *lateReader { return nil }

func (*lateReader) fill() error { return nil }
