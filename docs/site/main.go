// Command site makes the site of the documents: a page for each, for people, and
// beside it the text that it was made of, for programs, with llms.txt to lead
// them. A page asks nobody else for anything: no font, no script, no picture.
//
//	go run ./docs/site -out site
package main

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	out := flag.String("out", "site", "the folder to write to; what it held is removed")
	flag.Parse()
	if err := run(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// run writes the site, or nothing when a link leads nowhere.
func run(root, out string) error {
	files, err := build(os.DirFS(root))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for name, data := range files {
		to := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // it is made to be read by all
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil { //nolint:gosec // likewise
			return err
		}
	}
	fmt.Fprintf(os.Stdout, "%d files in %s; begin with %s\n", len(files), out, path.Join(filepath.ToSlash(out), "index.html")) //nolint:errcheck // nobody is left to tell
	return nil
}
