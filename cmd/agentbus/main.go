// Agentbus is a bus for agents that call agents: the binary of this module.
//
// Each verb has a file. A verb is a struct with its flags and arguments and a
// Run method; it stands as a field in [cli], and fails with an error that
// [describe] turns into words and an exit code.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/agentbus/agentbus/execagent"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == superviseArg {
		os.Exit(execagent.Supervise(os.Args[2:]))
	}
	os.Exit(interruptible(os.Args[1:]))
}

// interruptible runs the program until it ends or is asked to. The second signal
// ends the process at once, and says how to go on with what is left.
func interruptible(args []string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // who reads no more sees no more, and a run goes on
	go func() {                                             // it ends with the process
		<-signals
		cancel()
		<-signals
		a.part()
		os.Exit(int(exitInterrupted)) //nolint:revive // whoever asks twice waits for nobody
	}()
	return a.main(ctx, args)
}

// part says what is left, if somebody reads: a log that is read no more is
// waited for by whatever writes to it.
func (a *app) part() {
	text := a.parting.Load()
	if text == nil {
		return
	}
	said := make(chan struct{})
	go func() { // ends with the process
		defer close(said)
		fmt.Fprintln(os.Stderr, *text)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
}
