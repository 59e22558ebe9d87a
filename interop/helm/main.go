// Command helm does with Helm's own packages what `helm template` and `helm
// lint` do with the chart of a bus: it reads values from standard input, and
// prints what came of it as JSON. It is built alone because Helm's command,
// with its client of a cluster and its registries, takes minutes.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
)

// A result is what Helm makes of a chart.
type result struct {
	Files map[string]string `json:"files"` // what was rendered, by the path of its template
	Lint  []string          `json:"lint"`  // what lint says, of any severity
	Error string            `json:"error"` // why nothing was rendered
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: helm CHART KUBERNETES-VERSION < VALUES")
		os.Exit(2)
	}
	var r result
	if err := r.render(os.Args[1], os.Args[2]); err != nil {
		r.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// render renders and lints the chart in dir as the release bus in the namespace
// agents, for a cluster of that version.
func (r *result) render(dir, kubernetes string) error {
	b, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	values, err := chartutil.ReadValues(b)
	if err != nil {
		return err
	}
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return err
	}
	c, err := loader.Load(dir)
	if err != nil {
		return err
	}
	linted, err := chartutil.ReadValues(b) // lint takes out of them what is null
	if err != nil {
		return err
	}
	for _, m := range lint.AllWithKubeVersion(dir, linted, "agents", version).Messages {
		r.Lint = append(r.Lint, m.Error())
	}
	if !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, version.Version) {
		return fmt.Errorf("the chart is for Kubernetes %s, and this is %s", c.Metadata.KubeVersion, version.Version)
	}
	able := chartutil.DefaultCapabilities.Copy()
	able.KubeVersion = *version
	top, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "bus", Namespace: "agents", Revision: 1, IsInstall: true}, able)
	if err != nil {
		return err
	}
	r.Files, err = engine.Render(c, top)
	return err
}
