package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/measure"
	"github.com/agentbus/agentbus/server"
)

const (
	measured   = 200 * time.Millisecond // how long a disk, or a store, is measured
	slowSync   = 20 * time.Millisecond  // a call waits for two of them
	littleRoom = 1 << 30                // bytes
	future     = time.Minute            // how far ahead of the clock a run may have begun, by machines that share a store
)

// store looks at the disk and at what is on it, and measures both. Of a store that
// is up to date it opens a bus, and returns the key of the doctor there.
func (d *doctor) store(ctx context.Context) (key agentbus.Credential) {
	if path := d.c.Store.SQLite; path != "" && !d.disk(ctx, filepath.Dir(path)) {
		return key
	}
	version, newest, err := server.Schema(ctx, d.c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.find(checkStore, "", levelNote, d.c.Store.URL+" is not there yet", "agentbus serve makes it")
	case err != nil:
		d.find(checkStore, "", levelFault, d.c.Store.URL+" cannot be read: "+cause(err), "see to what stands there, or name another store: store.url, or AGENTBUS_STORE_URL")
	case version > newest:
		d.find(checkStore, "", levelFault, fmt.Sprintf("it was written by a newer agentbus: schema %d, and this one knows %d", version, newest), "use the newer version, or name another store")
	case version < newest:
		d.find(checkStore, "", levelNote, fmt.Sprintf("its tables are of schema %d; this version brings them to %d, after which an older one cannot use them", version, newest), "stop older buses on it and keep a copy; then agentbus migrate, or agentbus serve")
	default:
		var static identity.StaticKey
		key, static = doctorKey()
		d.open(ctx, static)
	}
	return key
}

// disk looks at where the file of the store is, and measures how long it takes
// to keep 1 KiB for good.
func (d *doctor) disk(ctx context.Context, dir string) (writable bool) {
	took, err := measure.Syncs(ctx, dir, measured)
	if err != nil {
		what := "cannot write to " + dir + ": " + cause(err)
		if _, serr := os.Stat(dir); errors.Is(serr, fs.ErrNotExist) {
			what = "there is no directory " + dir
		}
		d.find(checkStore, "disk", levelFault, what, "let this user write there, or name another place: store.url, or AGENTBUS_STORE_URL")
		return false
	}
	q := took.Quantiles(0.5, 0.99)
	told := fmt.Sprintf("write and fsync of 1 KiB: p50 %s, p99 %s", seconds(q[0]), seconds(q[1]))
	if q[0] > slowSync.Seconds() {
		d.find(checkStore, "disk", levelWarning, told+"; a call waits for two of them", "put the store on a faster local disk")
	} else {
		d.find(checkStore, "disk", levelOK, told, "")
	}
	on, known := fileSystemOf(dir)
	switch {
	case !known:
	case on.network != "":
		d.find(checkStore, "disk", levelWarning, dir+" is on "+on.network+", where SQLite's locks and syncs cannot be relied on", "put the file on a local disk, or use PostgreSQL: store.url: postgres://…")
	case on.volatile:
		d.find(checkStore, "disk", levelWarning, dir+" is in memory: what is stored there is gone when the machine stops", "put the file on a disk")
	}
	if known && on.free < littleRoom {
		d.find(checkStore, "disk", levelWarning, fmt.Sprintf("%d MiB are free in %s", on.free>>20, dir), "make room: a bus whose disk is full refuses calls")
	}
	return true
}

// open opens the store, as every verb that reads it does.
func (d *doctor) open(ctx context.Context, key identity.StaticKey) {
	s, err := d.app.open(ctx, server.Config{Config: d.c, Keys: []identity.StaticKey{key}})
	if err != nil {
		p := describe(err)
		d.find(checkStore, "", levelFault, p.What+": "+p.Why, cmp.Or(p.Next, "see to what stands there, or name another store: store.url, or AGENTBUS_STORE_URL"))
		return
	}
	d.opened = s
	if d.commits(ctx, s.Store()) {
		d.newestRun(ctx, s.Store())
	}
}

// commits measures how long the store takes to commit.
func (d *doctor) commits(ctx context.Context, s server.Store) (writable bool) {
	var took measure.Series
	for end := time.Now().Add(measured); len(took) == 0 || time.Now().Before(end) && ctx.Err() == nil; {
		began := time.Now()
		if err := s.Check(ctx); err != nil {
			d.find(checkStore, "", levelFault, d.c.Store.URL+" cannot be written: "+cause(err), "make room on its disk, and let this user write to it")
			return false
		}
		took = append(took, time.Since(began).Seconds())
	}
	q := took.Quantiles(0.5, 0.99)
	d.find(checkStore, "", levelOK, fmt.Sprintf("%s commits: p50 %s, p99 %s", d.c.Store.URL, seconds(q[0]), seconds(q[1])), "")
	return true
}

// newestRun looks whether the clock has gone back since the store was used.
func (d *doctor) newestRun(ctx context.Context, s server.Store) {
	runs, err := s.RunSummaries(ctx, agentbus.RunFilter{}, 1, "")
	if err != nil {
		d.find(checkStore, "", levelFault, "its runs cannot be read: "+cause(err), "see the message; agentbus ledger verify tells whether the rest is in order")
		return
	}
	if now := time.Now(); len(runs) > 0 && runs[0].Began.After(now.Add(future)) {
		d.find(checkClock, "", levelWarning, "the newest run of the store began at "+when(runs[0].Began)+", and it is "+when(now)+" now", "set the clock of this machine, and let NTP keep it")
	}
}

// doctorKey makes a key for the questions of --ask. It is known to this process
// only.
func doctorKey() (agentbus.Credential, identity.StaticKey) {
	p := agentbus.Principal{ID: "doctor", Role: agentbus.PrincipalUser}
	secret, _ := identity.NewKey(p, time.Now())
	return bearer(secret), identity.StaticKey{Principal: p, Secret: secret}
}

// seconds shows a short time with three digits.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	for _, unit := range slices.Backward([]time.Duration{time.Microsecond, time.Millisecond, time.Second}) {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}
