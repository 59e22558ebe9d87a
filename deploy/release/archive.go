package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// An entry is a file of an archive.
type entry struct {
	name string
	mode os.FileMode
	data []byte
}

// An archived is an archive with its checksum.
type archived struct {
	name, sum string
	data      []byte
}

// sums are the checksums of the files of a release, by name.
type sums map[string]string

// bytes are the checksums as sha256sum --check reads them.
func (s sums) bytes() []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s  %s\n", s[name], name)
	}
	return b.Bytes()
}

// write writes a file of the release, and its checksum into s unless that is
// nil.
func (r *release) write(name string, data []byte, s sums) error {
	if s != nil {
		s[name] = sum(data)
	}
	return os.WriteFile(filepath.Join(r.dist, name), data, 0o644) //nolint:gosec // it is made to be handed out
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// archive packs the program for t with its licences: a zip for Windows, a
// tar.gz for the others.
func (r *release) archive(ctx context.Context, t target, program []byte) (archived, error) {
	notices, err := r.notices(ctx, program)
	if err != nil {
		return archived{}, err
	}
	entries := []entry{{t.program(), 0o755, program}, {"NOTICES.txt", 0o644, notices}}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(r.root, name)) //nolint:gosec // a file of this module
		if err != nil {
			return archived{}, err
		}
		entries = append(entries, entry{name, 0o644, data})
	}
	name, pack := r.base(t)+".tar.gz", tarball
	if t.os == "windows" {
		name, pack = r.base(t)+".zip", zipped
	}
	data, err := pack(entries, r.made)
	return archived{name: name, sum: sum(data), data: data}, err
}

// tarball packs entries as they are given, all of one time and of nobody.
func tarball(entries []entry, made time.Time) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: int64(len(e.data)), ModTime: made, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

// zipped is tarball for those who have no tar.
func zipped(entries []entry, made time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: made}
		h.SetMode(e.mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
