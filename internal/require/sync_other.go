//go:build !linux

package require

import "errors"

// FailSyncs says that it cannot be done here; see the one of Linux.
func FailSyncs() error { return errors.New("only Linux lets a process filter its system calls") }
