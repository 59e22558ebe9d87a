package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Schema returns the schema version of the store at path, and the newest that
// this build knows, to which [Open] brings it. It changes nothing: it reads the
// head of the file, which what is still in the write-ahead log may be ahead of.
// A file that is not there is an fs.ErrNotExist; an empty one has version 0. A
// process that has the store open must not call it: reading a file gives up the
// locks that the process holds on it.
func Schema(path string) (version, newest int64, err error) {
	if err := orphaned(path); err != nil {
		return 0, schemaVersion, err
	}
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return 0, schemaVersion, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	head := make([]byte, 100)
	n, err := io.ReadFull(f, head)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return 0, schemaVersion, nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return 0, schemaVersion, fmt.Errorf("read the head of the store: %w", err)
	case err != nil || string(head[:16]) != "SQLite format 3\x00":
		return 0, schemaVersion, errors.New("it is not a SQLite database")
	}
	version = int64(binary.BigEndian.Uint32(head[60:]))
	if app := binary.BigEndian.Uint32(head[68:]); app != applicationID && (app != 0 || version != 0) {
		return 0, schemaVersion, errors.New("it is the database of another program")
	}
	return version, schemaVersion, nil
}
