package main

import (
	"strings"
	"testing"

	"github.com/agentbus/agentbus/internal/pgtest"
)

// TestMigrateStatus: what it says of a store before its tables are made and
// after, and of one that was made by a newer program; it makes none itself.
func TestMigrateStatus(t *testing.T) {
	t.Parallel()
	const echoes = "agents: {echo: {kind: builtin, builtin: echo}}\n"
	url := pgtest.Database(t)
	for name, path := range map[string]string{"sqlite": configure(t, echoes), "postgres": configureOn(t, url, echoes)} {
		status := func() string {
			code, out, stderr := outcome(t.Context(), "migrate", "status", "--config", path)
			if code != 0 {
				t.Errorf("%s: exit %d: %s", name, code, stderr)
			}
			return out
		}
		for range 2 {
			if got := status(); !strings.HasPrefix(got, "no tables yet") {
				t.Errorf("%s, new: %s", name, got)
			}
		}
		if code, _, stderr := outcome(t.Context(), "migrate", "--config", path); code != 0 {
			t.Fatalf("%s: exit %d: %s", name, code, stderr)
		}
		if got := status(); !strings.HasPrefix(got, "schema ") || !strings.HasSuffix(strings.TrimSpace(got), ": up to date") {
			t.Errorf("%s, migrated: %s", name, got)
		}
		if code, _, _ := outcome(t.Context(), "migrate", "status", "--from", "sqlite:x.db", "--config", path); code == 0 {
			t.Errorf("%s: status with --from", name)
		}
	}
	path := configureOn(t, url, echoes)
	inDatabase(t, url, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)")
	if code, out, stderr := outcome(t.Context(), "migrate", "status", "--config", path); code != 0 || !strings.HasPrefix(out, "schema 9999, of a newer agentbus") {
		t.Errorf("newer: exit %d: %s %s", code, out, stderr)
	}
}
