package docs_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/agentbus/agentbus"
)

// A modelConfig is what we use of kagent's object of that name.
type modelConfig struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Provider        string
		Model           string
		APIKeySecret    string `yaml:"apiKeySecret"`
		APIKeySecretKey string `yaml:"apiKeySecretKey"`
		OpenAI          struct {
			BaseURL string `yaml:"baseUrl"`
		} `yaml:"openAI"`
	}
}

// checkKagent holds an object of kagent to its fields, and to where the chart of the
// bus puts it: the service that helm install makes, and its port.
func checkKagent(t *testing.T, b block) {
	t.Helper()
	var m modelConfig
	d := yaml.NewDecoder(strings.NewReader(b.text))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "kagent.dev/v1alpha2" || m.Kind != "ModelConfig" || m.Metadata.Name == "" || m.Spec.Provider != "OpenAI" || m.Spec.APIKeySecret == "" || m.Spec.APIKeySecretKey == "" {
		t.Errorf("kagent takes no %+v", m)
	}
	if slug := agentbus.Speaker(m.Spec.Model).Slug(); slug != m.Spec.Model {
		t.Errorf("%q is no name of an agent", m.Spec.Model)
	}
	u, err := url.Parse(m.Spec.OpenAI.BaseURL)
	if err != nil || u.Path != "/v1" {
		t.Fatalf("%q is not where a bus speaks OpenAI's API", m.Spec.OpenAI.BaseURL)
	}
	release, _, _ := strings.Cut(u.Hostname(), ".")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if !strings.Contains(read("README.md"), "helm install "+release+" ") {
		t.Errorf("nothing installs a release %s", release)
	}
	var values struct{ Service struct{ Port int } }
	if err := yaml.Unmarshal([]byte(read("helm/agentbus/values.yaml")), &values); err != nil || u.Port() == "" && values.Service.Port != 80 {
		t.Errorf("the service of the chart is on port %d, %v", values.Service.Port, err)
	}
}
