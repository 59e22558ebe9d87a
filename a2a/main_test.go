package a2a_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The SDK's server keeps what serves a task until that task has ended, and some
// of the agents here leave theirs waiting.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("elsewhere", 19800) //nolint:reassign // what a task tells is in UTC wherever the bus is
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/a2aproject/a2a-go/v2/internal/taskexec.runProducerConsumer"),
		goleak.IgnoreAnyFunction("github.com/a2aproject/a2a-go/v2/internal/taskexec.runProducerConsumer.func4"),
		goleak.IgnoreAnyFunction("github.com/a2aproject/a2a-go/v2/internal/taskexec.(*executionHandler).processEvents"),
		goleak.IgnoreAnyFunction("github.com/a2aproject/a2a-go/v2/a2asrv/eventqueue.newInMemoryEventBroker.func1"))
}
