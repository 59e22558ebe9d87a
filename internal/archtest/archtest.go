// Package archtest holds the house rules that a compiler does not: which room
// may import which, how long a file and a function may be, that every package
// says what it is, and that documents name files that exist. Its test applies
// them to the module.
package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Sizes above which a reader loses the thread; tests and generated files are
// free.
const (
	maxFileLines = 900
	maxFuncLines = 100
)

// badNames are names of packages that tell nothing of what is inside.
var badNames = []string{"common", "helper", "helpers", "models", "pkg", "types", "util", "utils"}

// A pkg is one folder with Go files.
type pkg struct {
	path  string // from the root, "." for the root itself
	name  string
	doc   bool
	code  bool                // it has files that are not tests
	files map[string][]string // file → what it imports, tests left out
}

// Check returns what breaks the house rules in the module at the root of
// fsys, a line each, sorted. It returns an error when the module cannot be
// read.
func Check(fsys fs.FS) ([]string, error) {
	module, err := modulePath(fsys)
	if err != nil {
		return nil, err
	}
	pkgs, found, err := load(fsys)
	if err != nil {
		return nil, err
	}
	if len(pkgs) == 0 {
		return nil, errors.New("no Go package found")
	}
	for _, p := range pkgs {
		found = append(found, checkPackage(p)...)
		for file, imports := range p.files {
			for _, imp := range imports {
				found = append(found, checkImport(module, p.path, file, imp)...)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// modulePath reads the name of the module.
func modulePath(fsys fs.FS) (string, error) {
	b, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", errors.New("go.mod names no module")
}

// load parses every Go file of the module and returns its packages, and the
// files and functions that are too long.
func load(fsys fs.FS) (pkgs map[string]*pkg, found []string, err error) {
	pkgs = map[string]*pkg{}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skipDir(fsys, name)
		case path.Ext(name) != ".go":
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		p := pkgs[dir]
		if p == nil {
			p = &pkg{path: dir, name: f.Name.Name, files: map[string][]string{}}
			pkgs[dir] = p
		}
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		p.name, p.code, p.doc = f.Name.Name, true, p.doc || f.Doc != nil
		p.files[name] = nil
		for _, imp := range f.Imports {
			to, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			p.files[name] = append(p.files[name], to)
		}
		if !ast.IsGenerated(f) {
			found = append(found, checkSizes(fset, f, name)...)
		}
		return nil
	})
	return pkgs, found, err
}

// skipDir leaves out what is not part of the module's code.
func skipDir(fsys fs.FS, dir string) error {
	base := path.Base(dir)
	if dir == "." {
		return nil
	}
	if base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules" || base == "vendor" {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir // another module
	}
	return nil
}

// checkSizes finds the file and its functions when they are too long.
func checkSizes(fset *token.FileSet, f *ast.File, name string) (found []string) {
	if n := fset.File(f.FileStart).LineCount(); n > maxFileLines {
		found = append(found, fmt.Sprintf("%s: %d lines; a file has at most %d: split it by its nouns", name, n, maxFileLines))
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncDecl, *ast.FuncLit:
			start, lines := fset.Position(n.Pos()).Line, fset.Position(n.End()).Line-fset.Position(n.Pos()).Line+1
			if lines > maxFuncLines {
				found = append(found, fmt.Sprintf("%s:%d: a function of %d lines; one has at most %d: name its steps", name, start, lines, maxFuncLines))
			}
			return false
		}
		return true
	})
	return found
}

// checkPackage finds a package without a comment, with a name that says
// nothing, or in no room.
func checkPackage(p *pkg) (found []string) {
	if p.code && !p.doc {
		found = append(found, p.path+": the package has no comment: say above its package clause what it is for")
	}
	for _, element := range append(strings.Split(p.path, "/"), strings.TrimSuffix(p.name, "_test")) {
		if slices.Contains(badNames, element) {
			found = append(found, fmt.Sprintf("%s: %q says nothing of what is inside: name the package after what it provides", p.path, element))
			break
		}
	}
	if _, ok := roomOf(p.path); !ok {
		found = append(found, p.path+": not a room of the house: add it, with its floor, to rooms in internal/archtest/rooms.go and to depguard in .golangci.yml")
	}
	return found
}

// checkImport finds what is wrong with one import of a file that is not a test.
func checkImport(module, from, file, imp string) []string {
	here, ok := roomOf(from)
	if !ok {
		return nil // said by checkPackage
	}
	if to, ours := strings.CutPrefix(imp, module); ours && (to == "" || to[0] == '/') {
		return checkOurs(here, from, file, path.Clean(strings.TrimPrefix(to, "/")))
	}
	switch {
	case (imp == "testing" || strings.HasPrefix(imp, "testing/")) && !here.kit:
		return []string{file + ": imports " + imp + ": it registers flags in every program that imports it; tests and test kits only"}
	case here.floor == 0 && strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") && !strings.HasPrefix(imp, "golang.org/x/text/"):
		return []string{file + ": imports " + imp + ": the vocabulary imports the standard library and golang.org/x/text only"}
	}
	return nil
}

// checkOurs finds what is wrong with an import of the room at to.
func checkOurs(here room, from, file, to string) []string {
	there, ok := roomOf(to)
	switch {
	case !ok:
		return []string{file + ": imports " + to + ", which is not a room of the house"}
	case there.kit && !here.kit:
		return []string{file + ": imports " + to + ", which is for tests"}
	case isStore(to) && !here.store:
		return []string{file + ": imports " + to + ": only " + strings.Join(whoMayImportStores(), ", ") + " and tests know a store; ask for an interface"}
	case there.floor >= here.floor:
		return []string{fmt.Sprintf("%s: imports %s: an import goes down, and this one goes from floor %v to %v; ask for an interface", file, to, here.floor, there.floor)}
	case there.floor > here.reach:
		return []string{fmt.Sprintf("%s: imports %s: %s reaches down from floor %v only", file, to, from, here.reach)}
	}
	return nil
}

func whoMayImportStores() []string {
	names := map[string]bool{}
	for _, r := range rooms {
		if r.store {
			names[strings.TrimSuffix(r.path, "/...")] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
