package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/agentbus/agentbus/server/config"
)

// initVerb writes the commented configuration.
type initVerb struct {
	Path  string `arg:"" optional:"" complete:"file" help:"Where to write it; else --config, else ./agentbus.yaml."`
	Force bool   `help:"Replace the file if it exists."`
}

// Run writes the file whole or not at all, readable by its owner only.
func (v *initVerb) Run(a *app) error {
	path := v.Path
	if path == "" {
		path = a.ConfigFile
	}
	if path == "" {
		path = config.DefaultPath
	}
	err := writeFile(path, config.Example(), v.Force)
	switch {
	case errors.Is(err, fs.ErrExist) && v.Force: // no file takes the place of a directory
		return &failure{exit: exitUsage, what: path + " is a directory", next: "name a file"}
	case errors.Is(err, fs.ErrExist):
		return &failure{exit: exitUsage, what: path + " exists already", why: "init does not overwrite a file", next: "name another path, or replace it with --force"}
	case err != nil:
		return &failure{exit: exitFailed, what: "cannot write " + path, why: cause(err), next: "name a path in a directory that you may write"}
	}
	named := ""
	if path != config.DefaultPath { // the verbs do not find it by themselves
		named = " --config " + path
	}
	return a.answer(map[string]string{"path": path}, "wrote "+path+"\nnext: agentbus serve"+named+", and agentbus keys create NAME"+named+" for a key to call it with\n")
}

// cause returns err without the name of what was asked for, which the user
// knows, or of a temporary file, which tells the user nothing.
func cause(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err.Error()
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// writeFile writes data to path through a temporary file beside it. Unless
// replace is set, a path that exists is left alone and is fs.ErrExist, whoever
// made it and when.
func writeFile(path string, data []byte, replace bool) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // after a rename there is nothing to remove
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	switch {
	case err != nil:
		return err
	case replace:
		return os.Rename(f.Name(), path)
	}
	return os.Link(f.Name(), path) // unlike a rename, it fails when path exists
}
