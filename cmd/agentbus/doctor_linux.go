package main

import (
	"golang.org/x/sys/unix"
)

// clockSynchronised reports whether the kernel knows that somebody keeps its
// clock right; known is false where it does not say.
func clockSynchronised() (synchronised, known bool) {
	var t unix.Timex // no mode: it is only read
	state, err := unix.Adjtimex(&t)
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, err == nil
}

// networked are the file systems that are another machine's.
var networked = map[int64]string{unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "SMB"}

// A fileSystem is what is known of where a file is kept.
type fileSystem struct {
	free     uint64 // bytes
	volatile bool   // it is memory
	network  string // what kind of network file system it is; "" for none
}

// fileSystemOf returns that of dir; known is false where the system does not say.
func fileSystemOf(dir string) (fs fileSystem, known bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fs, false
	}
	kind := int64(s.Type) //nolint:unconvert // its type depends on the architecture
	return fileSystem{
		free:     s.Bavail * uint64(s.Bsize), //nolint:gosec // a block has a size
		volatile: kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC, network: networked[kind],
	}, true
}
