package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

type migrateVerb struct {
	From string `placeholder:"sqlite:PATH" help:"Fill the configured PostgreSQL store, which is empty, with all of this one: everything or nothing."`
}

// Run brings the store up to date, and fills it.
func (v *migrateVerb) Run(ctx context.Context, a *app) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	path := ""
	if v.From != "" {
		var ok bool
		if path, ok = strings.CutPrefix(v.From, "sqlite:"); !ok || path == "" {
			return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "--from names no SQLite store", Explain: &agentbus.Explain{Next: "write --from sqlite:PATH"}}
		}
		if _, err := os.Stat(path); err != nil {
			return err // the store is not made here
		}
	}
	moved, err := server.Migrate(ctx, c, path)
	if err != nil {
		return err
	}
	text := "the store is up to date\n"
	if path != "" {
		var b strings.Builder
		for _, t := range slices.Sorted(maps.Keys(moved.Rows)) {
			fmt.Fprintf(&b, "%10d  %s\n", moved.Rows[t], t)
		}
		fmt.Fprintf(&b, "copied; the ledger is in order: %s of %d payers, $%s charged\n", entriesOf(moved.Ledger.Entries), moved.Ledger.Payers, moved.Ledger.Charged.USD())
		text = b.String()
	}
	return a.answer(moved, text)
}
