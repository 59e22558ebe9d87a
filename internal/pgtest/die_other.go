//go:build unix && !linux

package pgtest

import "syscall"

// dieWithUs runs the server as who; only Linux can tie its life to ours.
func dieWithUs(who *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: who}
}
