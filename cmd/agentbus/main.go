// Agentbus is a bus for agents that call agents: the binary of this module.
//
// Each verb has a file. A verb is a struct with its flags and arguments and a
// Run method; it stands as a field in [cli], and fails with an error that
// [describe] turns into words and an exit code.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/agentbus/agentbus/execagent"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == superviseArg {
		os.Exit(execagent.Supervise(os.Args[2:]))
	}
	os.Exit(interruptible(os.Args[1:]))
}

// interruptible runs the program until it ends or is asked to. A second signal
// ends the process at once.
func interruptible(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	return run(ctx, args, os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
}
