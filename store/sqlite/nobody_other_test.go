//go:build !linux

package sqlite_test

import (
	"testing"

	"github.com/agentbus/agentbus/internal/require"
)

func actAsNobody(t *testing.T, _ string) {
	t.Helper()
	require.Missing(t, "a user that is not root")
}
