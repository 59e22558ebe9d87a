package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

type migrateVerb struct {
	What string `arg:"" optional:"" enum:"up,status" default:"up" help:"up, or status: how far the tables are; nothing is changed."`
	From string `placeholder:"sqlite:PATH" help:"Fill the configured PostgreSQL store, which is empty, with all of this one: everything or nothing."`
}

// status says how far the tables of the store are.
func (v *migrateVerb) status(ctx context.Context, a *app, c *config.Config) error {
	if v.From != "" {
		return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: "status copies nothing", Explain: &agentbus.Explain{Next: "leave out --from, or status"}}
	}
	has, newest, err := server.Schema(ctx, c)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := fmt.Sprintf("schema %d: up to date\n", has)
	switch {
	case has > newest:
		text = fmt.Sprintf("schema %d, of a newer agentbus: this one knows %d and does not open it\n", has, newest)
	case has == 0:
		text = fmt.Sprintf("no tables yet: agentbus migrate, or a bus that starts, makes those of schema %d\n", newest)
	case has < newest:
		text = fmt.Sprintf("schema %d: agentbus migrate, or a bus that starts, brings it to %d\n", has, newest)
	}
	return a.answer(map[string]int64{"schema": has, "newest": newest}, text)
}

// Run brings the store up to date, and fills it.
func (v *migrateVerb) Run(ctx context.Context, a *app) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	if v.What == "status" {
		return v.status(ctx, a, c)
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
	if path == "" {
		return a.answer(map[string]bool{"up_to_date": true}, "the store is up to date\n")
	}
	var b strings.Builder
	for _, t := range slices.Sorted(maps.Keys(moved.Rows)) {
		fmt.Fprintf(&b, "%10d  %s\n", moved.Rows[t], t)
	}
	fmt.Fprintf(&b, "copied; the ledger is in order: %s of %s, $%s charged\n", entriesOf(moved.Ledger.Entries), plural(moved.Ledger.Payers, "payer"), moved.Ledger.Charged.USD())
	return a.answer(moved, b.String())
}
