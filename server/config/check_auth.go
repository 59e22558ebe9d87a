package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

const realmPattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`

var realmRE = regexp.MustCompile(realmPattern)

// reservedRealms begin the ids that the bus itself gives, such as that of an
// agent which pays for itself.
var reservedRealms = []string{"agent", "conversation"}

// auth checks who may prove who it is, and how (G4).
func (l *loader) auth() {
	a := &l.c.Auth
	owner := map[string]string{} // name of an issuer → where it stands
	issuers := map[string]string{}
	for i := range a.JWT {
		l.jwt(&a.JWT[i], item("auth.jwt", i), owner, issuers)
	}
	if in := a.Introspection; in != nil {
		l.introspection(in, "auth.introspection", owner)
	}
	if a.MTLS != nil {
		l.realm("auth.mtls", a.MTLS.Name, owner)
		if l.c.TLS == nil || l.c.TLS.ClientCAFile == "" {
			l.fault("auth.mtls", "no client certificate is asked for, so nobody is known by one", "name the authorities with tls.client_ca_file")
		}
	}
	l.order()
	for i, k := range l.c.Keys {
		if prefix := l.c.ReservedPrefix(k.ID); prefix != "" {
			l.fault(join(item("keys", i), "id"), "an id that begins with "+prefix+" is one of "+owner[strings.TrimSuffix(prefix, ":")], "choose another id")
		}
	}
}

// order checks who is asked.
func (l *loader) order() {
	a := &l.c.Auth
	for i, m := range a.Order {
		path := item("auth.order", i)
		switch {
		case m == "": // reported where it was read
		case slices.Contains(a.Order[:i], m):
			l.fault(path, string(m)+" stands here twice", "remove one of them")
		case !a.has(m):
			l.fault(path, "no "+string(m)+" is configured", "add auth."+string(m)+", or remove it here")
		}
	}
	for _, m := range authMethods {
		if a.has(m) && !slices.Contains(a.Methods(), m) {
			l.warn("auth.order", string(m)+" is not in the order, so nobody gets in by it", "add it, unless that is meant")
		}
	}
}

func (l *loader) jwt(j *JWT, path string, owner, issuers map[string]string) {
	u, ok := l.secureURL(join(path, "issuer"), j.Issuer)
	if j.JWKSURL != "" {
		l.secureURL(join(path, "jwks_url"), j.JWKSURL)
	}
	if ok && j.Name == "" {
		if j.Name = strings.ToLower(u.Hostname()); !realmRE.MatchString(j.Name) {
			l.fault(path, "the host of the issuer cannot name its principals", "add name: a short name")
			j.Name = ""
		}
	}
	if j.Name != "" {
		l.realm(path, j.Name, owner)
	}
	if first, twice := issuers[j.Issuer]; twice && j.Issuer != "" {
		l.fault(join(path, "issuer"), "the issuer is that of "+first+" too", "remove one of them")
	} else {
		issuers[j.Issuer] = path
	}
	if j.Audience == "" && !l.faulty(join(path, "audience")) {
		l.fault(join(path, "audience"), "it is empty, so tokens for others would count here", "write what the issuer puts into aud for this bus")
	}
	l.subjectClaim(path, j.SubjectClaim)
}

func (l *loader) subjectClaim(path, claim string) {
	if claim == "" && !l.faulty(join(path, "subject_claim")) {
		l.fault(join(path, "subject_claim"), "it is empty, so tokens would name nobody", "remove it for the default, sub")
	}
}

func (l *loader) introspection(in *Introspection, path string, owner map[string]string) {
	l.realm(path, in.Name, owner)
	l.secureURL(join(path, "url"), in.URL)
	if in.ClientID == "" && !l.faulty(join(path, "client_id")) {
		l.fault(join(path, "client_id"), "it is empty", "write the id that the endpoint gave this bus")
	}
	secret, ok := l.secretBy(encoded, path, "client_secret_env", in.ClientSecretEnv, "client_secret_file", in.ClientSecretFile)
	if ok {
		in.ClientSecret = agentbus.NewCredential(secret)
	} else if in.ClientSecretEnv == "" && in.ClientSecretFile == "" {
		l.fault(path, "the client has no secret", "name the variable that holds it with client_secret_env, or the file with client_secret_file")
	}
	for i, p := range in.Prefixes {
		if at := item(join(path, "prefixes"), i); !visibleRE.MatchString(p) && !l.faulty(at) {
			l.fault(at, "this is not how a token can begin", "write one or more visible ASCII characters")
		}
	}
}

var visibleRE = regexp.MustCompile(`^[!-~]+$`)

// realm checks the name under which an issuer's principals are known: no two
// issuers may have one, or the one could bill the other's users.
func (l *loader) realm(path, name string, owner map[string]string) {
	at := join(path, "name")
	switch other, taken := owner[name]; {
	case l.faulty(at):
	case !realmRE.MatchString(name):
		l.fault(at, "this is not a name", "use 1 to 63 letters, digits and . _ -, and begin with a letter or digit")
	case slices.Contains(reservedRealms, name):
		l.fault(at, "the bus uses the name itself", "choose another name")
	case taken:
		l.fault(at, "the name "+name+" is that of "+other+" too, so their principals could not be told apart", "give one of them another with name:")
	default:
		owner[name] = path
	}
}

// secureURL checks a URL that is believed, or shown credentials: https, or this
// machine. Its text is never repeated in a fault.
func (l *loader) secureURL(path, text string) (*url.URL, bool) {
	if text == "" && l.faulty(path) {
		return nil, false
	}
	const fix = "write it as https://host/path"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		l.fault(path, "this is not a URL", fix)
	case u.Scheme != "http" && u.Scheme != "https":
		l.fault(path, "the URL is not https", fix)
	case u.Hostname() == "" || u.Opaque != "":
		l.fault(path, "the URL names no host", fix)
	case u.User != nil || u.Fragment != "":
		l.fault(path, "the URL holds a user or a fragment", "remove it")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		l.fault(path, "plain HTTP to another machine can be changed on the way", fix)
	default:
		return u, true
	}
	return nil, false
}

// tls reads what the public surface is served with.
func (l *loader) tls() {
	t := l.c.TLS
	if t == nil {
		return
	}
	cert, ok := l.pemFile("tls.cert_file", t.CertFile)
	key, alsoOK := l.pemFile("tls.key_file", t.KeyFile)
	if ok && alsoOK {
		if _, err := tls.X509KeyPair(cert, key); err != nil { // the cause could repeat the key
			l.fault("tls", "the two files are not a certificate and its private key, in PEM", "see to cert_file and key_file; check them with openssl x509 and openssl pkey")
		}
		t.Cert, t.Key = string(cert), agentbus.NewCredential(string(key))
	}
	if t.ClientCAFile == "" {
		return
	}
	if ca, ok := l.pemFile("tls.client_ca_file", t.ClientCAFile); ok {
		if !x509.NewCertPool().AppendCertsFromPEM(ca) {
			l.fault("tls.client_ca_file", "the file holds no certificate in PEM", "write the certificates of the authorities into it")
		}
		t.ClientCA = string(ca)
	}
	if l.c.Auth.MTLS == nil {
		l.warn("tls.client_ca_file", "client certificates are verified, and nobody is known by one", "add auth.mtls")
	}
}

func (l *loader) pemFile(path, file string) ([]byte, bool) {
	if file == "" {
		if !l.faulty(path) {
			l.fault(path, "it is empty", "name the file")
		}
		return nil, false
	}
	data, err := l.src.ReadFile(file)
	if err != nil {
		l.fault(path, "the file cannot be read: "+reason(err), "make it a file that this user may read")
		return nil, false
	}
	return data, true
}

// grants checks what a key may do (G6).
func (l *loader) grants(k *Key, path string) {
	at := join(path, "agents")
	if _, set := l.c.origins[at]; set && k.Agents == nil && !l.faulty(at) {
		l.fault(at, "it has no value, and every agent is hardly meant", "write the names of agents, [] for none, or remove the key for all")
	}
	for i, name := range k.Agents {
		if _, ok := l.c.Agents[name]; !ok && !l.faulty(item(at, i)) {
			l.fault(item(at, i), "there is no agent "+quote(name), known("agents", name, l.c.Agents))
		}
	}
}
