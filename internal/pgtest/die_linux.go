package pgtest

import "syscall"

// dieWithUs makes the kernel end the server when this process is gone, however
// that happened.
func dieWithUs(who *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: who, Pdeathsig: syscall.SIGQUIT}
}
