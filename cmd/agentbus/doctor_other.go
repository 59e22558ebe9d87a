//go:build !linux

package main

// clockSynchronised is not known here.
func clockSynchronised() (synchronised, known bool) { return false, false }

// A fileSystem is what is known of where a file is kept.
type fileSystem struct {
	free     uint64
	volatile bool
	network  string
}

// fileSystemOf is not known here.
func fileSystemOf(string) (fs fileSystem, known bool) { return fs, false }
