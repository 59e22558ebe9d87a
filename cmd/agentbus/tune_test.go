package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// G35: a bus collects seldom, more seldom where GOMEMLIMIT bounds its memory,
// and as its environment says where that says something.
func TestServeTunesTheCollector(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]string{"": "400", "GOMEMLIMIT=1GiB": "800", "GOGC=50": "50"} {
		path := configure(t, "keys: [{id: ops, secret_env: OPS, role: admin}]\n")
		p := start(t, filepath.Dir(path), []string{"GOGC=", "GOMEMLIMIT=", "OPS=" + opsKey, env}, "serve", "--quiet", "--config", path)
		_, admin, _ := p.serves(t)
		if figures := get(t, admin+"/metrics", opsKey); !strings.Contains(figures, "\ngo_gc_gogc_percent "+want+"\n") {
			t.Errorf("%s: GOGC is not %s", env, want)
		}
	}
}
