package rawjson_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/internal/rawjson"
	"github.com/agentbus/agentbus/internal/require"
)

// Every parser of JSON is tried with these files: what begins with y_ is JSON, what
// begins with n_ is none, and of the rest only no crash is asked.
func TestJSONTestSuite(t *testing.T) {
	t.Parallel()
	dir := require.Module(t, "github.com/nst/JSONTestSuite@v0.0.0-20241122125541-1ef36fa01286")
	files, err := filepath.Glob(filepath.Join(dir, "test_parsing", "*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		valid := rawjson.Valid(b)
		switch name := filepath.Base(file); {
		case strings.HasPrefix(name, "y_") != valid && !strings.HasPrefix(name, "i_"):
			t.Errorf("%s: valid is %v", name, valid)
		case valid && rawjson.Space(b, rawjson.Value(b, rawjson.Space(b, 0))) != len(b):
			t.Errorf("%s: its value ends elsewhere", name)
		}
	}
}
