package storetest_test

import (
	"path/filepath"
	"testing"

	"github.com/agentbus/agentbus/store/sqlite"
	"github.com/agentbus/agentbus/store/storetest"
)

// A store of your own keeps the promises of the bus when Run passes. In a test,
// t is its *testing.T.
func ExampleRun() { //nolint:testableexamples // a test runs it, not an example
	var t *testing.T
	storetest.Run(t, func(t *testing.T, dir string) storetest.Store {
		t.Helper()
		mine, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "bus.db")}) // open yours here
		if err != nil {
			t.Fatal(err)
		}
		return mine
	})
}
