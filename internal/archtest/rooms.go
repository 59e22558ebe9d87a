package archtest

import (
	"slices"
	"strings"
)

// A room is a package of the module and where it stands. Imports go down: a
// room imports rooms on floors up to its reach, and never its own floor.
type room struct {
	path  string  // from the root of the module, which is "."; "x/..." is every package below x
	floor float64 // see docs/glossary.md and CONTRIBUTING.md for the picture
	reach float64 // the highest floor it may import; below its own
	store bool    // it may import a store: it wires one to those who want it
	kit   bool    // it is for tests: it may import package testing, and only tests and kits may import it
}

const nothing = -1 // the reach of who imports nothing of ours

// rooms is the whole house. To add a room, add a line here, its floor to
// depguard in .golangci.yml and its name to CONTRIBUTING.md.
var rooms = []room{
	{path: ".", floor: 0, reach: nothing}, // the vocabulary

	{path: "internal/rawjson", floor: 0.5, reach: nothing},
	{path: "internal/httpx", floor: 1, reach: 0.5}, // errors are JSON
	{path: "internal/http1", floor: 1.5, reach: 1},
	{path: "internal/sse", floor: 1, reach: 0},
	{path: "internal/faults", floor: 1, reach: 0},
	{path: "internal/guard", floor: 1, reach: 0},
	{path: "internal/measure", floor: 1, reach: 0},
	{path: "internal/typed", floor: 1, reach: nothing},

	{path: "policy", floor: 2, reach: 1},
	{path: "conversation", floor: 2, reach: 1},
	{path: "eventlog", floor: 2, reach: 1},
	{path: "identity", floor: 2, reach: 1},
	{path: "openai", floor: 2, reach: 1},
	{path: "a2a", floor: 2, reach: 1},
	{path: "execagent", floor: 2, reach: 1},
	{path: "builtin", floor: 2, reach: 1},
	{path: "telemetry", floor: 2, reach: 1},
	{path: "conformance", floor: 2, reach: 1},

	{path: "admin/console", floor: 2.5, reach: 2}, // the pages; admin serves them
	{path: "gateway", floor: 3, reach: 2},
	{path: "openwop", floor: 3, reach: 2},
	{path: "admin", floor: 3, reach: 2.5},

	{path: "store/sqlite", floor: 3, reach: 1}, // a store satisfies interfaces without knowing who declared them
	{path: "store/postgres", floor: 3, reach: 1},

	{path: "server/config", floor: 3.5, reach: 0}, // what a file may say; server makes rooms of it
	{path: "server", floor: 4, reach: 3.5, store: true},

	{path: "cmd/agentbus", floor: 5, reach: 4},
	{path: "agentbustest", floor: 5, reach: 4, store: true, kit: true},
	{path: "examples/...", floor: 5, reach: 4, store: true},
	{path: "benchmarks/...", floor: 5, reach: 4, kit: true}, // it measures a whole bus, as server wires it, on a PostgreSQL that tests have; the store comes with that
	{path: "deploy/...", floor: 5, reach: nothing},          // makes releases and checks what they are deployed with
	{path: "docs/...", floor: 5, reach: nothing},            // makes a site of the documents and runs what they show

	{path: "store/storetest", floor: 4, reach: 3, kit: true}, // the promises of a store, against the interfaces above
	{path: "internal/require", floor: 1, reach: nothing, kit: true},
	{path: "internal/openapi", floor: 1, reach: nothing, kit: true},
	{path: "internal/pgtest", floor: 1.5, reach: 1, kit: true},                // a PostgreSQL for tests; it says with require what is missing
	{path: "internal/woptest", floor: 3.5, reach: 3, kit: true},               // events against the schemas of the wire
	{path: "internal/sqlitetest", floor: 4, reach: 3, store: true, kit: true}, // new stores for tests, quickly
	{path: "internal/otlptest", floor: 1, reach: nothing, kit: true},
	{path: "internal/archtest", floor: 1, reach: nothing, kit: true},
}

// roomOf returns the room of the package at path.
func roomOf(path string) (room, bool) {
	for _, r := range rooms {
		if family, ok := strings.CutSuffix(r.path, "/..."); ok && (path == family || strings.HasPrefix(path, family+"/")) || r.path == path {
			return r, true
		}
	}
	return room{}, false
}

// isStore reports whether the room at path keeps what happened.
func isStore(path string) bool {
	return strings.HasPrefix(path, "store/") && path != "store/storetest"
}

// Folders returns the folders at the root of the module that have rooms, sorted.
func Folders() []string {
	var folders []string
	for _, r := range rooms {
		if folder, _, _ := strings.Cut(r.path, "/"); folder != "." {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}
