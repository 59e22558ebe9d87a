package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus/internal/require"
)

// diagnosed runs the doctor and returns what it found. What it prints holds no
// secret, and every warning and fault says what to do.
func diagnosed(t *testing.T, env map[string]string, args ...string) (code int, d diagnosis) {
	t.Helper()
	args = append([]string{"doctor"}, args...)
	code, stdout, stderr := operate(t, env, append(args, "--json")...)
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatalf("%s%s: %v", stdout, stderr, err)
	}
	again, text, errors := operate(t, env, args...)
	if again != code {
		t.Errorf("exit %d with --json, %d without", code, again)
	}
	for _, said := range []string{stdout, stderr, text, errors} {
		if strings.Contains(strings.ToLower(said), "canary") {
			t.Errorf("a secret is in %s", said)
		}
	}
	for _, f := range d.Findings {
		if (f.Level == levelWarning || f.Level == levelFault) && f.Next == "" {
			t.Errorf("%+v does not say what to do", f)
		}
		if !strings.Contains(text, f.What) && f.Check != checkStore && f.Check != checkClock && !strings.Contains(f.What, "within") { // those measure, and tell the time
			t.Errorf("the text lacks %q", f.What)
		}
	}
	return code, d
}

// has reports whether a diagnosis has a finding of a level that holds a text.
func (d *diagnosis) has(check string, level findingLevel, text string) bool {
	for _, f := range d.Findings {
		if f.Check == check && f.Level == level && strings.Contains(f.Subject+": "+f.What, text) {
			return true
		}
	}
	return false
}

type want struct {
	check string
	level findingLevel
	text  string
}

func (d *diagnosis) must(t *testing.T, all ...want) {
	t.Helper()
	for _, w := range all {
		if !d.has(w.check, w.level, w.text) {
			t.Errorf("no %s of %s with %q in %+v", w.level, w.check, w.text, d.Findings)
		}
	}
}

// A whole bus: it serves, its agents answer, and nothing is wrong with it.
func TestDoctorOfAWholeBus(t *testing.T) {
	t.Parallel()
	models := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sk-canary-agent" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"object":"list","data":[{"id":"gpt-x"}]}`))
	}))
	t.Cleanup(models.Close)
	listen, admin := require.Address(t), require.Address(t)
	path := filepath.Join(t.TempDir(), "agentbus.yaml")
	save(t, path, fmt.Sprintf(`listen: %s
admin: {listen: %q}
store: {url: "sqlite:%s/bus.db"}
keys: [{id: alice, secret_env: ALICE}]
agents:
  echo: {kind: builtin, builtin: echo}
  model: {kind: openai, url: %q, model: gpt-x, api_key_env: AGENT}
  other: {kind: openai, url: %q, model: gpt-y, api_key_env: AGENT}
`, listen, admin, filepath.Dir(path), models.URL+"/v1", models.URL+"/v1"))
	env := map[string]string{"ALICE": "sk-canary-alice", "AGENT": "sk-canary-agent"}
	code, d := diagnosed(t, env, "--config", path)
	if code != 0 {
		t.Errorf("before it serves: exit %d: %+v", code, d.Findings)
	}
	d.must(t, want{checkPorts, levelOK, listen + " is free"}, want{checkStore, levelNote, "is not there yet"}, want{checkVersion, levelNote, "no bus runs"})
	serving(t, path, env)
	code, d = diagnosed(t, env, "--config", path)
	if code != 0 || d.Faults > 0 {
		t.Errorf("exit %d: %+v", code, d.Findings)
	}
	d.must(t,
		want{checkConfig, levelOK, "1 key, 3 agents, 0 conversations"}, want{checkPorts, levelOK, "serves on " + listen}, want{checkPorts, levelOK, "the admin API of a bus is on " + admin},
		want{checkVersion, levelOK, "the bus and this program are"}, want{checkStore, levelOK, "write and fsync"}, want{checkStore, levelOK, "commits: p50"},
		want{checkAgents, levelOK, "echo: builtin"}, want{checkAgents, levelOK, "model: " + models.URL}, want{checkAgents, levelWarning, "other: "},
	)
	// The shell of an operator has not the secrets of the bus: that is told, and the rest is looked at.
	code, d = diagnosed(t, nil, "--config", path)
	if code != int(exitUsage) {
		t.Errorf("without secrets: exit %d", code)
	}
	d.must(t, want{checkConfig, levelFault, "ALICE is not set"}, want{checkVersion, levelOK, "the bus and this program are"}, want{checkAgents, levelNote, "model: "})
}

// Each fault is found, and ends the program as its kind does.
func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/refuses"):
			w.WriteHeader(http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, "/fails"):
			w.WriteHeader(http.StatusBadGateway)
		case strings.HasPrefix(r.URL.Path, "/page"):
			_, _ = w.Write([]byte("<html>hello</html>"))
		case strings.HasPrefix(r.URL.Path, "/moved"):
			http.Redirect(w, r, "https://agents.example.com/v1", http.StatusMovedPermanently)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(other.Close)
	at := strings.TrimPrefix(other.URL, "http://")
	newer := filepath.Join(t.TempDir(), "newer.db")
	head := make([]byte, 4096)
	copy(head, "SQLite format 3\x00")
	copy(head[60:], []byte{0, 0, 3, 0xe7})
	copy(head[68:], []byte{0x61, 0x67, 0x62, 0x73})
	save(t, newer, string(head))
	certified, foreign := t.TempDir(), t.TempDir()
	certify(t, certified, time.Hour)
	certify(t, foreign, time.Hour)
	for name, tt := range map[string]struct {
		yaml string
		exit exitCode
		want want
	}{
		"key":          {"max_dept: 4", exitUsage, want{checkConfig, levelFault, "there is no such key"}},
		"port":         {"listen: " + at, exitFailed, want{checkPorts, levelFault, "no bus listens on " + at}},
		"admin port":   {"admin: {listen: '" + at + "'}", exitFailed, want{checkPorts, levelFault, "no bus listens on " + at}},
		"address":      {"listen: 203.0.113.1:80", exitFailed, want{checkPorts, levelFault, "cannot listen on 203.0.113.1:80"}},
		"directory":    {"store: {url: 'sqlite:/nowhere/at/all/bus.db'}", exitFailed, want{checkStore, levelFault, "there is no directory /nowhere/at/all"}},
		"no database":  {"store: {url: 'sqlite:" + os.Args[0] + "'}", exitFailed, want{checkStore, levelFault, "not a SQLite database"}},
		"newer store":  {"store: {url: 'sqlite:" + newer + "'}", exitFailed, want{checkStore, levelFault, "written by a newer agentbus"}},
		"gone":         {"agents: {gone: {kind: openai, url: 'http://127.0.0.1:1/v1'}}", exitAgent, want{checkAgents, levelFault, "gone: no answer from"}},
		"refuses":      {"agents: {picky: {kind: openai, url: '" + other.URL + "/refuses', api_key_env: KEY}}", exitAgent, want{checkAgents, levelFault, "picky: " + other.URL + "/refuses refuses its key"}},
		"wants a key":  {"agents: {picky: {kind: openai, url: '" + other.URL + "/refuses'}}", exitAgent, want{checkAgents, levelFault, "wants a key"}},
		"fails":        {"agents: {ill: {kind: openai, url: '" + other.URL + "/fails'}}", exitOK, want{checkAgents, levelWarning, "ill: "}},
		"lists none":   {"agents: {shy: {kind: openai, url: '" + other.URL + "/v1'}}", exitOK, want{checkAgents, levelNote, "shy: "}},
		"a page":       {"agents: {site: {kind: openai, url: '" + other.URL + "/page'}}", exitOK, want{checkAgents, levelWarning, "what it says is no JSON"}},
		"moved":        {"agents: {far: {kind: openai, url: '" + other.URL + "/moved'}}", exitOK, want{checkAgents, levelWarning, "redirects, which calls do not follow: 301"}},
		"no card":      {"agents: {peer: {kind: a2a, url: '" + other.URL + "'}}", exitAgent, want{checkAgents, levelFault, "peer: no card"}},
		"no program":   {"agents: {coder: {kind: exec, command: [no-such-program]}}", exitAgent, want{checkAgents, levelFault, "coder: the program no-such-program is not here"}},
		"other key":    {"tls: {cert_file: '" + foreign + "/tls.crt', key_file: '" + certified + "/tls.key'}", exitUsage, want{checkConfig, levelFault, "not a certificate and its private key"}},
		"no agents":    {"{}", exitOK, want{checkConfig, levelNote, "there are no agents"}},
		"no admin":     {"admin: {listen: ''}", exitOK, want{checkPorts, levelNote, "there is no admin listener"}},
		"public plain": {"listen: 0.0.0.0:0", exitOK, want{checkConfig, levelWarning, "without TLS"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "agentbus.yaml")
			var head strings.Builder
			for key, value := range map[string]string{"listen": "127.0.0.1:0", "admin": "{listen: '127.0.0.1:0'}", "store": "{url: 'sqlite:" + filepath.Join(filepath.Dir(path), "bus.db") + "'}"} {
				if !strings.HasPrefix(tt.yaml, key) && tt.yaml != "{}" {
					head.WriteString(key + ": " + value + "\n")
				}
			}
			text := tt.yaml + "\n" + head.String()
			if tt.yaml == "{}" {
				text = "listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\nstore: {url: 'sqlite:" + filepath.Join(filepath.Dir(path), "bus.db") + "'}\n"
			}
			save(t, path, text)
			code, d := diagnosed(t, map[string]string{"KEY": "sk-canary-key"}, "--config", path, "--timeout", "20s")
			if code != int(tt.exit) {
				t.Errorf("exit %d, want %d: %+v", code, tt.exit, d.Findings)
			}
			d.must(t, tt.want)
		})
	}
}

// An agent that takes too long is told apart from one that is not there.
func TestDoctorOfASlowAgent(t *testing.T) {
	t.Parallel()
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(slow.Close)
	path := configure(t, "agents: {slow: {kind: openai, url: '"+slow.URL+"'}}\n")
	code, d := diagnosed(t, nil, "--config", path, "--timeout", "50ms")
	if code != int(exitAgent) {
		t.Errorf("exit %d", code)
	}
	d.must(t, want{checkAgents, levelFault, "slow: no answer from " + slow.URL + ": it takes longer than 50ms"})
}

// A bus of another version, whose file has changed and whose clock is off.
func TestDoctorOfAnotherVersion(t *testing.T) {
	t.Parallel()
	protocol, ready := "0", http.StatusOK
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		if r.URL.Path == "/version" {
			fmt.Fprintf(w, `{"name":"agentbus","version":"0.0.1","protocol":%q}`, protocol) //nolint:errcheck // the doctor sees it
			return
		}
		w.WriteHeader(ready)
		_, _ = w.Write([]byte(`{"status":"ready","degraded":["listen waits for a restart"],"detail":"the store is gone"}`))
	}))
	t.Cleanup(old.Close)
	path := configure(t, "")
	code, d := diagnosed(t, nil, "--config", path, "--server", old.URL)
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	d.must(t, want{checkVersion, levelWarning, "the bus is agentbus 0.0.1"}, want{checkVersion, levelWarning, "listen waits for a restart"}, want{checkClock, levelWarning, "behind ours"})
	protocol, ready = "9", http.StatusServiceUnavailable
	code, d = diagnosed(t, nil, "--config", path, "--server", old.URL+"/")
	if code != int(exitFailed) {
		t.Errorf("exit %d", code)
	}
	d.must(t, want{checkVersion, levelFault, "protocol 9"}, want{checkVersion, levelFault, "the store is gone"})
	for _, at := range []string{"127.0.0.1:8080", "http://127.0.0.1:1"} {
		if code, d = diagnosed(t, nil, "--config", path, "--server", at); code != int(exitFailed) || d.Faults != 1 {
			t.Errorf("%s: exit %d: %+v", at, code, d.Findings)
		}
	}
}

// Certificates that end, and files of secrets that everybody may read.
func TestDoctorOfTLS(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		until time.Duration
		exit  exitCode
		want  want
	}{
		"expired": {-time.Hour, exitFailed, want{checkTLS, levelFault, "has expired"}},
		"soon":    {5 * 24 * time.Hour, exitOK, want{checkTLS, levelWarning, "expires on"}},
		"fine":    {365 * 24 * time.Hour, exitOK, want{checkTLS, levelOK, "is valid until"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, listen := t.TempDir(), require.Address(t)
			certify(t, dir, tt.until)
			if err := os.Chmod(filepath.Join(dir, "tls.key"), 0o644); err != nil { // whatever the umask
				t.Fatal(err)
			}
			path := filepath.Join(dir, "agentbus.yaml")
			save(t, path, fmt.Sprintf("listen: %s\nadmin: {listen: '127.0.0.1:0'}\npublic_url: https://other.example\nstore: {url: 'sqlite:%s/bus.db'}\ntls: {cert_file: %s/tls.crt, key_file: %s/tls.key}\n", listen, dir, dir, dir))
			if name == "fine" {
				serving(t, path, nil)
			}
			code, d := diagnosed(t, nil, "--config", path)
			if code != int(tt.exit) {
				t.Errorf("exit %d: %+v", code, d.Findings)
			}
			d.must(t, tt.want, want{checkTLS, levelWarning, "bus.example, and public_url names other.example"}, want{checkTLS, levelWarning, "everybody on this machine may read"})
			if name == "fine" {
				d.must(t, want{checkPorts, levelOK, "serves on " + listen}, want{checkVersion, levelOK, "https://" + listen})
				certify(t, dir, tt.until) // renewed, which the bus does not know yet
				_, d = diagnosed(t, nil, "--config", path)
				d.must(t, want{checkPorts, levelFault, "shows another certificate than"})
			}
		})
	}
}

// certify writes a certificate that is valid for that long, and its key.
func certify(t *testing.T, dir string, until time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bus"}, DNSNames: []string{"bus.example"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(until),
	}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: cert}, "tls.key": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// With --ask every agent answers, as the payer doctor, and one that fails is a
// fault.
func TestDoctorAsks(t *testing.T) {
	t.Parallel()
	path := configure(t, "agents: {echo: {kind: builtin, builtin: echo, price: {call: 0.001}}, mute: {kind: exec, command: ['false'], dir: '"+t.TempDir()+"'}, gone: {kind: openai, url: 'http://127.0.0.1:1/v1'}}\n")
	if err := os.Remove(filepath.Join(filepath.Dir(path), "bus.db")); err != nil {
		t.Fatal(err)
	}
	if code, d := diagnosed(t, nil, "--config", path, "--ask"); !d.has(checkAgents, levelNote, "nobody was asked") {
		t.Errorf("exit %d: %+v", code, d.Findings)
	}
	s := opened(t, path, nil)
	code, _, _ := operate(t, nil, "doctor", "--config", path, "--ask")
	_, d := diagnosed(t, nil, "--config", path, "--ask", "--timeout", "20s")
	if code != int(exitAgent) || d.Faults != 2 {
		t.Errorf("exit %d: %+v", code, d.Findings)
	}
	d.must(t, want{checkAgents, levelOK, "echo: it answered"}, want{checkAgents, levelFault, "mute: it was asked, and failed"}, want{checkAgents, levelFault, "gone: no answer"})
	balances, err := s.Balances(t.Context(), "doctor")
	if err != nil || len(balances) != 1 || balances[0].Charged != 3000 {
		t.Errorf("the doctor paid %+v, %v", balances, err)
	}
}
