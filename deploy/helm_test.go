package deploy_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentbus/agentbus/server/config"
)

// installations are ways to install the chart that a user would take, and the
// objects that each makes.
var installations = map[string]struct {
	values string
	want   []string
}{
	"as it comes": {"", []string{"ConfigMap/bus", "NetworkPolicy/bus", "Service/bus", "ServiceAccount/bus", "StatefulSet/bus"}},
	"one replica, with all": {`
config:
  keys: [{id: alice, secret_env: ALICE_KEY}]
  agents: {critic: {kind: openai, url: "https://critic.example.com/v1", api_key_env: CRITIC_KEY}}
secrets: [agentbus-keys]
secretFiles: [bus-ca, signing.keys]
admin: {tokenSecret: {name: agentbus-admin}}
store: {sqlite: {storageClass: fast}}
ingress: {enabled: true, className: nginx, host: bus.example.com, tlsSecret: bus-tls}
podAnnotations: {example.com/a: "1"}
nodeSelector: {disk: ssd}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {}}
imagePullSecrets: [{name: registry}]
`, []string{"ConfigMap/bus", "Ingress/bus", "NetworkPolicy/bus", "Service/bus", "Service/bus-admin", "ServiceAccount/bus", "StatefulSet/bus"}},
	"three replicas": {`
store: {kind: postgres, postgres: {url: "postgres://agentbus@db.internal/agentbus?sslmode=verify-full", passwordSecret: {name: db}}}
`, []string{"ConfigMap/bus", "Deployment/bus", "NetworkPolicy/bus", "PodDisruptionBudget/bus", "Service/bus", "ServiceAccount/bus"}},
	"one of many, with all": {`
store: {kind: postgres, postgres: {url: "postgres://agentbus@db.internal/agentbus", replicas: 1, passwordSecret: {name: db, key: pw}}}
admin: {tokenSecret: {name: agentbus-admin, key: t}}
ingress: {enabled: true, host: bus.example.com, annotations: {nginx.ingress.kubernetes.io/proxy-buffering: null, example.com/b: "on"}}
image: {repository: registry.internal/agentbus, tag: "1.10", pullPolicy: Always}
resources: {limits: {memory: 1Gi, cpu: 2}}
goMemLimit: 920MiB
terminationGracePeriodSeconds: 90
`, []string{"ConfigMap/bus", "Deployment/bus", "Ingress/bus", "NetworkPolicy/bus", "Service/bus", "Service/bus-admin", "ServiceAccount/bus"}},
	"without what can be left out": {`
service: {type: LoadBalancer}
networkPolicy: {enabled: false}
podDisruptionBudget: {enabled: false}
store: {kind: postgres, postgres: {url: "postgresql://db/agentbus"}}
`, []string{"ConfigMap/bus", "Deployment/bus", "Service/bus", "ServiceAccount/bus"}},
	"numbers and texts": {`
config:
  agents: {echo: null, critic: {kind: openai, url: "https://critic.example.com/v1", price: {input: 0.15, output: 12.5}}}
  limits: {max_body: 4194304, in_flight: 10000000, call_timeout: 90s}
  conversations: {debate: {participants: [{agent: critic, label: "a: 'b' # c"}, {agent: critic, slug: "7"}], max_turns: 6, halt: {contains: "yes"}}}
`, []string{"ConfigMap/bus", "NetworkPolicy/bus", "Service/bus", "ServiceAccount/bus", "StatefulSet/bus"}},
	"TLS of its own": {"secretFiles: [bus-tls]\nconfig: {tls: {cert_file: /secrets/bus-tls/tls.crt, key_file: /secrets/bus-tls/tls.key}}", []string{"ConfigMap/bus", "NetworkPolicy/bus", "Service/bus", "ServiceAccount/bus", "StatefulSet/bus"}},
	"no TLS":         {"terminationGracePeriodSeconds: 5\nconfig: {tls: null}", []string{"ConfigMap/bus", "NetworkPolicy/bus", "Service/bus", "ServiceAccount/bus", "StatefulSet/bus"}},
	"no agents":      {"config: {agents: null}", []string{"ConfigMap/bus", "NetworkPolicy/bus", "Service/bus", "ServiceAccount/bus", "StatefulSet/bus"}},
}

// The chart makes the objects that it should, of which each fits the others, and
// a configuration that the bus takes.
func TestChart(t *testing.T) {
	t.Parallel()
	for name, tt := range installations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, notes, err := render(t, values(t, tt.values))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, slices.Sorted(maps.Keys(objects))); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(notes, "://bus.agents:80/v1") {
				t.Errorf("notes: %s", notes)
			}
			workload := objects["StatefulSet/bus"]
			if workload == nil {
				workload = objects["Deployment/bus"]
			}
			fits(t, objects, workload)
			restricted(t, workload)
			configured(t, objects["ConfigMap/bus"], workload)
		})
	}
}

// fits checks that selectors select the pod, that services lead to ports that it
// has, and that it mounts volumes that there are.
func fits(t *testing.T, objects map[string]tree, workload tree) {
	t.Helper()
	labels, _ := at(workload, "spec", "template", "metadata", "labels").(tree)
	pod := at(workload, "spec", "template", "spec")
	ports := names(at(pod, "containers", 0, "ports"))
	selectors := map[string]any{"workload": at(workload, "spec", "selector", "matchLabels")}
	for name, o := range objects {
		switch o["kind"] {
		case "Service":
			selectors[name] = at(o, "spec", "selector")
			if to := at(o, "spec", "ports", 0, "targetPort"); !slices.Contains(ports, to) {
				t.Errorf("%s leads to the port %v; there are %v", name, to, ports)
			}
		case "NetworkPolicy":
			selectors[name] = at(o, "spec", "podSelector", "matchLabels")
		case "PodDisruptionBudget":
			selectors[name] = at(o, "spec", "selector", "matchLabels")
		}
	}
	for name, s := range selectors {
		s, _ := s.(tree)
		if len(s) == 0 {
			t.Errorf("%s selects everything", name)
		}
		for key, value := range s {
			if labels[key] != value {
				t.Errorf("%s selects %s=%v; the pod has %v", name, key, value, labels[key])
			}
		}
	}
	volumes := append(names(at(pod, "volumes")), at(workload, "spec", "volumeClaimTemplates", 0, "metadata", "name"))
	for _, mount := range names(at(pod, "containers", 0, "volumeMounts")) {
		if !slices.Contains(volumes, mount) {
			t.Errorf("%v is mounted, and no volume; there are %v", mount, volumes)
		}
	}
	if _, ok := objects["ServiceAccount/"+fmt.Sprint(at(pod, "serviceAccountName"))]; !ok {
		t.Error("its service account is not made")
	}
}

func names(list any) (names []any) {
	l, _ := list.([]any)
	for _, v := range l {
		names = append(names, at(v, "name"))
	}
	return names
}

// restricted checks what the Pod Security Standard of that name asks for.
func restricted(t *testing.T, workload tree) {
	t.Helper()
	pod := at(workload, "spec", "template", "spec")
	container := at(pod, "containers", 0)
	want := tree{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": tree{"drop": []any{"ALL"}}}
	if diff := cmp.Diff(want, at(container, "securityContext")); diff != "" {
		t.Error(diff)
	}
	if at(pod, "securityContext", "runAsNonRoot") != true || at(pod, "securityContext", "seccompProfile", "type") != "RuntimeDefault" {
		t.Errorf("%v", at(pod, "securityContext"))
	}
	patience, _ := at(pod, "terminationGracePeriodSeconds").(int)
	if sleep, ok := at(container, "lifecycle", "preStop", "sleep", "seconds").(int); ok != (patience > 5) || ok && sleep != 5 { // Kubernetes refuses one that is longer
		t.Errorf("it ends while it is still sent connections, or is refused: it sleeps for %d s of %d", sleep, patience)
	}
	if at(container, "readinessProbe", "httpGet", "path") != "/readyz" || at(container, "livenessProbe", "httpGet", "path") != "/healthz" {
		t.Errorf("probes: %v", container)
	}
	for _, probe := range []string{"startupProbe", "readinessProbe"} {
		if at(container, probe, "timeoutSeconds") != 5 { // /readyz waits for the store for 2 s, and a kubelet for 1 s
			t.Errorf("%s: %v", probe, at(container, probe))
		}
	}
}

// configured checks that the bus takes the configuration of the map, with no
// more in its environment than the pod gives it.
func configured(t *testing.T, configMap, workload tree) {
	t.Helper()
	container := at(workload, "spec", "template", "spec", "containers", 0)
	env := map[string]string{}
	vars, _ := at(container, "env").([]any)
	for _, v := range vars {
		name, _ := at(v, "name").(string)
		env[name] = "secret of " + name
		if v, ok := at(v, "value").(string); ok {
			env[name] = v
		}
		if ref := at(v, "valueFrom"); ref != nil && (at(ref, "secretKeyRef", "name") == nil || at(ref, "secretKeyRef", "key") == nil) {
			t.Errorf("%s has no secret: %v", name, v)
		}
	}
	if at(container, "envFrom", 0, "secretRef", "name") == "agentbus-keys" {
		env["ALICE_KEY"], env["CRITIC_KEY"] = "alice's", "critic's"
	}
	text, _ := at(configMap, "data", "agentbus.yaml").(string)
	c, _, err := config.Parse("agentbus.yaml", []byte(text), config.Source{Env: func(name string) (string, bool) {
		v, ok := env[name]
		return strings.ReplaceAll(v, " ", "-"), ok
	}, ReadFile: func(file string) ([]byte, error) { return inSecret(t, container, file) }})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if c.Listen != "0.0.0.0:8080" {
		t.Errorf("%+v", c)
	}
	mounted := ""
	mounts, _ := at(container, "volumeMounts").([]any)
	for _, m := range mounts {
		if at(m, "name") == "config" {
			mounted = fmt.Sprint(at(m, "mountPath"), "/agentbus.yaml")
		}
	}
	if env[config.PathEnv] != mounted { // where keys create looks too, for which somebody goes into the pod
		t.Errorf("%s is %q, and the configuration is %s", config.PathEnv, env[config.PathEnv], mounted)
	}
	for _, probe := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		if scheme := at(container, probe, "httpGet", "scheme"); scheme != map[bool]string{false: "HTTP", true: "HTTPS"}[c.TLS != nil] {
			t.Errorf("%s asks by %v; tls is %v", probe, scheme, c.TLS)
		}
	}
}

// inSecret returns a file of the secret bus-tls, if it is mounted.
func inSecret(t *testing.T, container any, file string) ([]byte, error) {
	t.Helper()
	mounts, _ := at(container, "volumeMounts").([]any)
	if !slices.ContainsFunc(mounts, func(m any) bool { return at(m, "mountPath") == "/secrets/bus-tls" }) {
		return nil, os.ErrNotExist
	}
	s := httptest.NewTLSServer(nil) // for its certificate
	defer s.Close()
	if file == "/secrets/bus-tls/tls.crt" {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), nil
	}
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), err
}

// refusals are values that cannot work, and what is said of them.
var refusals = map[string]string{
	"store: {kind: postgres}":        "store.postgres.url is needed",
	"config: {listen: ':1'}":         "config.listen is set by the chart",
	"config: {store: {}}":            "config.store is set by the chart",
	"ingress: {enabled: true}":       "ingress.host is needed",
	"config: {admin: {pprof: true}}": "config.admin is set by the chart",
}

// What cannot work is refused when it is rendered.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	for over, want := range refusals {
		if _, _, err := render(t, values(t, over)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", over, err)
		}
	}
}

// The schema of the values takes those of every installation, and no key that
// the chart does not have.
func TestChartSchema(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("values", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("values")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(over string) error {
		b, err := json.Marshal(values(t, over))
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	for name, tt := range installations {
		if err := valid(tt.values); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, over := range []string{"replicas: 3", "store: {kind: mysql}", "goMemLimit: lots", "store: {postgres: {replicas: 0}}", "podAnnotations: {example.com/scrape: true}", "nodeSelector: {disk: 1}", "secretFiles: [a, a]"} {
		if err := valid(over); err == nil {
			t.Errorf("%s is taken", over)
		}
	}
}
