package storetest

import (
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentbus/agentbus"
)

// began is when everything in these tests begins; it has microseconds, which a
// store keeps, and a zone, which it does not.
var began = time.Date(2026, 3, 14, 15, 9, 26, 535_897_000, time.FixedZone("", 3600))

// difficult is text that a careless encoding breaks.
const difficult = "Zoë says \"no\", 'yes' \\ 🦊 \u202eright-to-left\u202c\n\ttab, <html>&amp; %00 NUL:\x00."

// same fails the test unless got is want. Times are compared as instants.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(agentbus.Error{}, "Err")); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// ok fails the test on an error.
func ok(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// refused fails the test unless err has code.
func refused(t *testing.T, what string, err error, code agentbus.Code) {
	t.Helper()
	if got := agentbus.CodeOf(err); got != code {
		t.Errorf("%s: got %v (%v), want %s", what, got, err, code)
	}
}

// collect reads a sequence to its end.
func collect[T any](t *testing.T, seq iter.Seq2[T, error]) []T {
	t.Helper()
	var all []T
	for v, err := range seq {
		ok(t, "read a sequence", err)
		all = append(all, v)
	}
	return all
}

// together runs f n times at once and waits for all of them.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
