// Package guard calls a backend without trusting it: to return when it is told
// to, not to panic, and to return errors that can be read.
package guard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"github.com/agentbus/agentbus"
)

// leave is how long a backend may take to return once its call has ended.
const leave = 100 * time.Millisecond

// said is one thing a backend said.
type said struct {
	chunk agentbus.Chunk
	err   error
}

// Call is b.Call that ends as soon as ctx does, with its cause, even if b does
// not listen to ctx (R10), and in which a panic of b is an error, and so is an end of
// its goroutine. The backend runs in a goroutine of its own, which is waited for at
// the end of the call, and left behind when it takes more than a tenth of a second
// to return.
func Call(ctx context.Context, b agentbus.Backend, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		words := make(chan said)
		go utter(ctx, b, c, words)
		defer func() {
			cancel()
			await(words)
		}()
		for {
			select {
			case <-ctx.Done():
				yield(agentbus.Chunk{}, context.Cause(ctx))
				return
			case s, more := <-words:
				if !more || !yield(s.chunk, s.err) || s.err != nil {
					return
				}
			}
		}
	}
}

// utter reads a backend's answer to its end, or until ctx ends, and closes words
// when the backend has returned.
func utter(ctx context.Context, b agentbus.Backend, c *agentbus.Call, words chan<- said) {
	defer close(words)
	tell := func(s said) bool {
		select {
		case words <- s:
			return s.err == nil
		case <-ctx.Done():
			return false
		}
	}
	returned := false
	defer func() {
		switch p := recover(); {
		case p != nil:
			tell(said{err: broken(agentbus.CodeInternal, "the participant's backend panicked", fmt.Errorf("panic: %v\n%s", p, debug.Stack()))})
		case !returned:
			tell(said{err: broken(agentbus.CodeAgentUnavailable, "the participant's backend ended its goroutine", nil)})
		}
	}()
	for chunk, err := range b.Call(ctx, c) {
		if e, ours := errors.AsType[*agentbus.Error](err); ours && e == nil {
			err = broken(agentbus.CodeInternal, "the participant's backend returned a nil *agentbus.Error as its error", nil)
		}
		if !tell(said{chunk, err}) {
			break
		}
	}
	returned = true
}

// broken is the error of a backend that breaks the rules of Go.
func broken(code agentbus.Code, message string, err error) error {
	return &agentbus.Error{Code: code, Message: message, Err: err, Explain: &agentbus.Explain{Next: "mend the backend; it is to return an *agentbus.Error where it fails"}}
}

// await waits until a backend whose call has ended has returned, or for as long
// as it may take.
func await(words <-chan said) {
	timer := time.NewTimer(leave)
	defer timer.Stop()
	for {
		select {
		case _, more := <-words:
			if !more {
				return
			}
		case <-timer.C:
			return
		}
	}
}
