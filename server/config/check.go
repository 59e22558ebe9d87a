package config

import (
	"encoding/hex"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

const (
	agentNamePattern = `^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`
	idPattern        = `^[!#-+\x2d-~]{1,128}$` // visible ASCII without comma and double quote
)

var (
	agentNameRE = regexp.MustCompile(agentNamePattern)
	idRE        = regexp.MustCompile(idPattern)
)

// check compares the values with each other and with the world: what the keys
// alone cannot say.
func (l *loader) check() {
	l.flags()
	l.listen()
	l.publicURL()
	l.collector()
	l.storeURL()
	l.keys()
	l.admin()
	l.installKey()
	l.sealingKey()
	l.trust()
	l.agents()
	l.resolver()
	l.conversations()
	l.budgets()
	l.auth()
	l.tls()
	l.a2a()
}

// a2a checks the A2A surface.
func (l *loader) a2a() {
	if name := l.c.A2A.DefaultAgent; name != "" {
		if _, ok := l.c.Agents[name]; !ok {
			l.fault("a2a.default_agent", "there is no agent "+quote(name), known("agents", name, l.c.Agents))
		}
	}
	for i, text := range l.c.TrustedProxies {
		_, err := netip.ParsePrefix(text)
		if _, e := netip.ParseAddr(text); err != nil && e != nil {
			l.fault(item("trusted_proxies", i), "this is neither a network nor an address", "write it like 10.0.0.0/8 or 10.0.0.7")
		}
	}
}

// flags reports a flag for a key that does not exist: a fault of the program.
func (l *loader) flags() {
	for _, f := range l.src.Flags {
		if o := l.c.origins[f.Key]; o.Source != "flag "+f.Name {
			l.add(Fault{Source: "flag " + f.Name, Key: f.Key, Problem: "there is no such key", Fix: "see agentbus config explain"})
		}
	}
}

func (l *loader) listen() {
	if host, ok := l.address("listen", l.c.Listen, "127.0.0.1:8080"); ok && !loopback(host) && l.c.TLS == nil {
		l.warn("listen", "the bus listens beyond this machine without TLS, so credentials can be read on the way", "listen on 127.0.0.1, set tls, or put a proxy with TLS before it")
	}
}

// address checks a host:port at path, and returns the host.
func (l *loader) address(path, text, example string) (host string, ok bool) {
	if host, ok = hostOf(text); !ok {
		l.fault(path, "this is not an address", "write host:port, such as "+example)
	}
	return host, ok
}

// hostOf returns the host of a host:port; false: text is none.
func hostOf(text string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, " /") {
		return "", false
	}
	return host, true
}

// admin finds the token of the admin listener, and refuses to open the listener
// to other machines without one.
func (l *loader) admin() {
	a := &l.c.Admin
	if text, ok := l.secretText("admin", "token_env", a.TokenEnv, "token_file", a.TokenFile); ok {
		a.Token = agentbus.NewCredential(text)
		for i, k := range l.c.Keys {
			if !k.Secret.IsZero() && k.Secret.Fingerprint(nil) == a.Token.Fingerprint(nil) {
				l.fault("admin", "its token is the secret of "+item("keys", i)+" too, so nobody could tell who calls", "give each a secret of its own")
			}
		}
	}
	if a.Listen == "" {
		return
	}
	host, ok := l.address("admin.listen", a.Listen, "127.0.0.1:8081")
	switch {
	case !ok:
	case a.Listen == l.c.Listen && !strings.HasSuffix(a.Listen, ":0"):
		l.fault("admin.listen", "this is the address of the public surface", "give the admin listener a port of its own")
	case loopback(host):
	case a.TokenEnv == "" && a.TokenFile == "":
		l.fault("admin.listen", "other machines could reach the admin listener, and there is no token", "listen on 127.0.0.1, or name the variable that holds a token with admin.token_env")
	default:
		l.warn("admin.listen", "the admin listener is reachable from other machines without TLS, so credentials can be read on the way", "listen on 127.0.0.1, or put a proxy with TLS before it")
	}
}

// loopback reports whether host is this machine.
func loopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func (l *loader) publicURL() {
	if l.c.PublicURL != "" {
		l.httpURL("public_url", l.c.PublicURL)
	}
}

// collector checks where spans go. A password is kept out of the URL: the
// headers of the export come by OTEL_EXPORTER_OTLP_HEADERS.
func (l *loader) collector() {
	if l.c.Telemetry.OTLP != "" {
		l.httpURL("telemetry.otlp", l.c.Telemetry.OTLP)
	}
}

// httpURL checks an absolute http or https URL, and returns it. Its text is
// never repeated in a fault: it may hold a password.
func (l *loader) httpURL(path, text string) (*url.URL, bool) {
	const fix = "write it as http://host:port/path or https://host/path"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		l.fault(path, "this is not a URL", fix)
	case u.Scheme != "http" && u.Scheme != "https":
		l.fault(path, "the URL is not http or https", fix)
	case u.Hostname() == "" || u.Opaque != "":
		l.fault(path, "the URL names no host", fix)
	case u.User != nil:
		l.fault(path, "the URL holds a user or password", "remove it; an agent's key comes by api_key_env or api_key_file")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#"):
		l.fault(path, "the URL holds a query or a fragment, which would be lost", "remove what follows ? or #")
	default:
		return u, true
	}
	return nil, false
}

func (l *loader) storeURL() {
	s := &l.c.Store
	scheme, rest, _ := strings.Cut(s.URL, ":")
	if text, ok := l.secretBy(encoded, "store", "password_env", s.PasswordEnv, "password_file", s.PasswordFile); ok {
		s.Password = agentbus.NewCredential(text)
	}
	switch {
	case scheme == "postgres" || scheme == "postgresql":
		l.databaseURL(s.URL)
	case s.URL == "memory:":
		s.SQLite = ":memory:"
		l.warn("store.url", "what is kept ends with the process, and other commands do not see it", "write sqlite:PATH, such as sqlite:agentbus.db, to keep it")
	case scheme != "sqlite":
		l.fault("store.url", "this is not the URL of a store", "write sqlite:PATH, such as sqlite:agentbus.db, postgres://USER@HOST/DATABASE, or memory:")
	case rest == "" || rest == ":memory:" || strings.ContainsAny(rest, "?#"):
		l.fault("store.url", "this is not the path of a file", "write sqlite:PATH, such as sqlite:agentbus.db, with neither ? nor #")
	default:
		l.c.Store.SQLite = rest
	}
}

// databaseURL checks the URL of a database. It is shown in many places: a
// password does not belong there.
func (l *loader) databaseURL(text string) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Host == "" && u.Query().Get("host") == "" || u.Fragment != "" {
		l.fault("store.url", "this is not the URL of a database", "write postgres://USER@HOST/DATABASE?sslmode=verify-full")
		return
	}
	_, password := u.User.Password()
	if password || u.Query().Has("password") || u.Query().Has("sslpassword") {
		l.fault("store.url", "the URL holds a password, which would be shown", "remove it, and name the variable that holds it: store.password_env")
	}
}

// keys finds the secret of each key, and keys that stand in each other's way.
func (l *loader) keys() {
	ids, secrets := map[string]int{}, map[string]int{}
	for i := range l.c.Keys {
		k, path := &l.c.Keys[i], item("keys", i)
		if _, set := l.c.origins[join(path, "id")]; set && !idRE.MatchString(k.ID) && !l.faulty(join(path, "id")) {
			l.fault(join(path, "id"), "this is not an id", "write 1 to 128 visible ASCII characters without comma and double quote")
		}
		if first, twice := ids[k.ID]; twice && k.ID != "" {
			l.fault(join(path, "id"), "the id is that of "+item("keys", first)+" too", "give each key an id of its own")
		} else {
			ids[k.ID] = i
		}
		l.grants(k, path)
		l.keySecret(k, path)
		if k.Secret.IsZero() {
			continue
		}
		mark := k.Secret.Fingerprint(nil)
		if first, twice := secrets[mark]; twice {
			l.fault(path, "its secret is that of "+item("keys", first)+" too, so nobody could tell who calls", "give each key a secret of its own")
		} else {
			secrets[mark] = i
		}
	}
}

func (l *loader) keySecret(k *Key, path string) {
	if !k.Secret.IsZero() {
		switch {
		case !l.src.Dev:
			l.fault(join(path, "secret"), "a secret in the file is refused", "put it into a variable and name that with secret_env, or into a file and name that with secret_file; --dev allows it here")
		case k.SecretEnv != "" || k.SecretFile != "":
			l.fault(join(path, "secret"), "the secret has two sources", "keep one of secret, secret_env and secret_file")
		}
		return
	}
	if k.SecretEnv == "" && k.SecretFile == "" {
		if l.faulty(path) || l.faulty(join(path, "secret")) {
			return // it could not be read
		}
		l.fault(path, "the key has no secret", "name the variable that holds it with secret_env, or the file with secret_file")
		return
	}
	if text, ok := l.secretText(path, "secret_env", k.SecretEnv, "secret_file", k.SecretFile); ok {
		k.Secret = agentbus.NewCredential(text)
		from := "file " + k.SecretFile
		if k.SecretEnv != "" {
			from = "env " + k.SecretEnv
		}
		l.c.origins[join(path, "secret")] = Origin{Source: from}
	}
}

// binaryKey reads a key as a file holds it.
func binaryKey(data []byte) (string, bool) {
	if len(data) == 32 {
		return string(data), true
	}
	return hexKey(string(data))
}

// hexKey reads a key of 32 bytes as hex digits.
func hexKey(text string) (string, bool) {
	key, err := hex.DecodeString(strings.TrimSpace(text))
	return string(key), err == nil && len(key) == 32
}

// names reports names that cannot stand in a URL or a turn, and names that
// differ in case only. It returns those of m, sorted.
func names[T any](l *loader, path string, m map[string]T) []string {
	sorted := slices.Sorted(maps.Keys(m))
	folded := map[string]string{}
	for _, name := range sorted {
		if !agentNameRE.MatchString(name) {
			l.fault(join(path, name), "this is not a name", "use 1 to 64 letters, digits, _ and -, and begin with a letter or digit")
		}
		lower := strings.ToLower(name)
		if other, twice := folded[lower]; twice {
			l.fault(join(path, name), "the name differs from "+other+" in case only", "rename one of them")
		}
		folded[lower] = name
	}
	return sorted
}
