package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A listed is a package as go list knows it for one target.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct {
		Main      bool
		GoVersion string
	}
}

// Every package of the module has its types in order for every target: what is
// written for one system must not keep another from compiling. So have the
// tests, but for Windows, whose signals are not those that they send.
// The types are checked from source, which takes seconds where a build of
// everything for six targets takes many minutes; make release builds.
func TestEveryTargetChecks(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads the source of everything, five times")
	}
	parsed := map[string]*ast.File{}
	fset := token.NewFileSet()
	for _, target := range targets {
		if target.os == "linux" && target.arch == "amd64" {
			continue // the tests themselves
		}
		found := &found{}
		known := map[string]*types.Package{"unsafe": types.Unsafe}
		for _, p := range list(t, target) {
			files := read(t, fset, parsed, p)
			known[p.ImportPath] = check(fset, p, files, known, target.arch, found)
		}
		if len(known) < 200 {
			t.Errorf("%v: %d packages", target, len(known))
		}
		for _, err := range found.ours {
			t.Errorf("%v: %v", target, err)
		}
	}
}

// list returns the packages of the module and what they are made of, each after
// those that it imports.
func list(t *testing.T, target target) (packages []listed) {
	t.Helper()
	tests := "-test=" + strconv.FormatBool(target.os != "windows")
	cmd := exec.CommandContext(t.Context(), "go", "list", "-buildvcs=false", "-deps", tests, "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+target.os, "GOARCH="+target.arch, "CGO_ENABLED=0", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(target, err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath != "unsafe" && !strings.HasSuffix(p.ImportPath, ".test") { // the latter's main is written by go test
			packages = append(packages, p)
		}
	}
}

// read parses the files of a package, each once for all targets.
func read(t *testing.T, fset *token.FileSet, parsed map[string]*ast.File, p listed) (files []*ast.File) {
	t.Helper()
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		f := parsed[path]
		if f == nil {
			var err error
			if f, err = parser.ParseFile(fset, path, nil, parser.SkipObjectResolution); err != nil {
				t.Fatal(err)
			}
			parsed[path] = f
		}
		files = append(files, f)
	}
	return files
}

// found collects what is wrong with packages of this module.
type found struct{ ours []error }

// check checks one package: of others' only what they declare, which is what
// ours can be wrong about.
func check(fset *token.FileSet, p listed, files []*ast.File, known map[string]*types.Package, arch string, found *found) *types.Package {
	ours := p.Module != nil && p.Module.Main
	conf := types.Config{
		Importer:         importer{p, known},
		IgnoreFuncBodies: !ours,
		Sizes:            types.SizesFor("gc", arch),
		Error: func(err error) {
			if ours {
				found.ours = append(found.ours, err)
			}
		},
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		conf.GoVersion = "go" + p.Module.GoVersion
	}
	path, _, _ := strings.Cut(p.ImportPath, " ")
	pkg, _ := conf.Check(path, fset, files, nil) // its errors went to Error
	return pkg
}

// importer finds what a package imports among those that were checked.
type importer struct {
	from  listed
	known map[string]*types.Package
}

func (i importer) Import(path string) (*types.Package, error) {
	if to, ok := i.from.ImportMap[path]; ok {
		path = to
	}
	if p := i.known[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s imports %s, which was not listed", i.from.ImportPath, path)
}
