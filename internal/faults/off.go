//go:build !faults

package faults

// At does nothing in this build.
func At(Point) {}
