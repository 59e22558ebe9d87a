package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A component is a module, in the words of CycloneDX.
type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

// A bill of materials says what a binary was made of, in CycloneDX 1.6.
type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

// bill returns what is inside the program for t: the list that the linker wrote
// into it, and nothing that is only in go.mod.
func (r *release) bill(t target, program []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, err
	}
	digest := sum(program)
	main := component{
		Type: "application", Name: "agentbus", Version: r.version, PURL: "pkg:golang/" + info.Main.Path + "@v" + r.version,
		Hashes:     []hash{{"SHA-256", digest}},
		Properties: []property{{"agentbus:target", t.String()}, {"agentbus:revision", r.revision}},
	}
	main.Ref = main.PURL
	b := bill{
		Format: "CycloneDX", Spec: "1.6", Version: 1,
		Serial:   "urn:uuid:" + digest[:8] + "-" + digest[8:12] + "-5" + digest[13:16] + "-8" + digest[17:20] + "-" + digest[20:32],
		Metadata: metadata{Timestamp: r.made.Format(time.RFC3339), Component: main},
	}
	add := func(name, version, sum string) {
		c := component{Type: "library", Name: name, Version: version, PURL: "pkg:golang/" + name + "@" + version}
		if c.Ref = c.PURL; sum != "" {
			c.Properties = []property{{"go:sum", sum}}
		}
		b.Components = append(b.Components, c)
	}
	add("std", strings.TrimPrefix(info.GoVersion, "go"), "")
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(m.Path, m.Version, m.Sum)
	}
	all := dependency{Ref: main.Ref}
	for _, c := range b.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{all}
	data, err := json.MarshalIndent(b, "", "  ")
	return append(data, '\n'), err
}

var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// notices returns the licences of every module that is inside the program, as
// most of them ask, and of Go itself.
func (r *release) notices(ctx context.Context, program []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, err
	}
	goroot, err := output(ctx, r.root, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	b := bytes.NewBufferString("agentbus holds code of the following modules, under these licences.\n")
	if err := appendLicences(b, "Go, "+info.GoVersion, goroot); err != nil {
		return nil, err
	}
	args := []string{"list", "-m", "-f", "{{.Path}}\t{{.Version}}\t{{.Dir}}"}
	for _, m := range info.Deps {
		args = append(args, m.Path)
	}
	list, err := output(ctx, r.root, "go", args...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("go list says %q", line)
		}
		if err := appendLicences(b, f[0]+" "+f[1], f[2]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// appendLicences appends the licences of the module in dir, of which there is
// one at least.
func appendLicences(b *bytes.Buffer, name, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		if f.IsDir() || !licence.MatchString(f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name())) //nolint:gosec // a module that this one is made of
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "\n==== %s: %s\n\n%s\n", name, f.Name(), bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))))
		found = true
	}
	if !found {
		return errors.New(name + " has no licence in " + dir)
	}
	return nil
}
