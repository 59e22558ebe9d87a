package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"text/template"
)

//go:embed agentbus.rb.tmpl
var formulaText string

// writeFormula writes the formula for Homebrew, when everything that it installs
// was made.
func (r *release) writeFormula(files map[target]archived) error {
	for _, t := range targets {
		if _, ok := files[t]; !ok && t.os != "windows" {
			fmt.Fprintf(os.Stdout, "no formula: %v was not made\n", t) //nolint:errcheck // nobody is left to tell
			return nil
		}
	}
	data, err := formula(r.version, files)
	if err != nil {
		return err
	}
	return r.write("agentbus.rb", data, nil)
}

// formula returns the formula that installs files.
func formula(version string, files map[target]archived) ([]byte, error) {
	var b bytes.Buffer
	err := template.Must(template.New("").Funcs(template.FuncMap{
		"file": func(os, arch string) string { return files[target{os, arch}].name },
		"sum":  func(os, arch string) string { return files[target{os, arch}].sum },
	}).Parse(formulaText)).Execute(&b, map[string]string{"Version": version})
	return b.Bytes(), err
}
