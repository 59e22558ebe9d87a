package archtest

import (
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
)

var (
	url = regexp.MustCompile(`[a-z]+://\S+`)
	// named matches a path with a folder and an ending, a Go or Markdown file
	// by its name, and a folder written as code, such as `gateway/`.
	named = regexp.MustCompile(`(?:[\w.-]+/)+[\w.-]*\w\.[a-z]{2,5}\b|\b[\w-]+\.(?:go|md)\b|` + "`((?:[\\w.-]+/)+)`")
)

// Paths returns the files and folders that the document at name in fsys
// mentions, each once, sorted, and those of them that exist neither from the
// root of fsys nor from the document's own folder.
func Paths(fsys fs.FS, name string) (mentioned, missing []string, err error) {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range named.FindAllStringSubmatch(url.ReplaceAllString(string(b), ""), -1) {
		p := m[0]
		if m[1] != "" {
			p = m[1]
		}
		mentioned = append(mentioned, path.Clean(p))
	}
	slices.Sort(mentioned)
	mentioned = slices.Compact(mentioned)
	for _, p := range mentioned {
		if !exists(fsys, p) && !exists(fsys, path.Join(path.Dir(name), p)) {
			missing = append(missing, p)
		}
	}
	return mentioned, missing, nil
}

func exists(fsys fs.FS, name string) bool {
	_, err := fs.Stat(fsys, name)
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid)
}
