package a2a

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// MaxCard is the largest card that is read, in bytes.
const MaxCard = 256 << 10

// maxHosts is how many hosts a card may name as its own.
const maxHosts = 64

// CardPath is where a card stands below an agent's base.
const CardPath = "/.well-known/agent-card.json"

// An Interface is one endpoint that a card names.
type Interface struct {
	URL     string
	Binding Binding
	Version string // of A2A, such as 1.0
	Tenant  string
}

// decodeCard reads a card. Of a member that stands there twice the last one
// counts, for everything that the bus takes from it.
func decodeCard(card []byte) (c map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(card))
	d.UseNumber()
	if err := d.Decode(&c); err != nil || c == nil {
		return nil, errors.Join(errors.New("the card is no JSON object"), err)
	}
	return c, nil
}

// textAt returns the text that is a member of an object; "" when it is none.
func textAt(object any, name string) string {
	m, _ := object.(map[string]any)
	s, _ := m[name].(string)
	return s
}

// listAt returns the list that is a member of a card; nil when it is none.
func listAt(c map[string]any, name string) []any {
	list, _ := c[name].([]any)
	return list
}

// Interfaces returns the endpoints that a card names, of A2A 1.0 or 0.3, in its
// order, those of other bindings than ours left out.
func Interfaces(card []byte) (all []Interface) {
	c, err := decodeCard(card)
	if err != nil {
		return nil
	}
	add := func(binding string, i Interface) {
		if i.Binding = bindingOf(binding); i.Binding != "" {
			all = append(all, i)
		}
	}
	for _, v := range listAt(c, "supportedInterfaces") {
		add(textAt(v, "protocolBinding"), Interface{URL: textAt(v, "url"), Version: textAt(v, "protocolVersion"), Tenant: textAt(v, "tenant")})
	}
	if u, ok := c["url"].(string); ok { // of A2A 0.3
		version := cmp.Or(minor(textAt(c, "protocolVersion")), "0.3")
		add(cmp.Or(textAt(c, "preferredTransport"), string(JSONRPC)), Interface{URL: u, Version: version})
		for _, v := range listAt(c, "additionalInterfaces") {
			add(textAt(v, "transport"), Interface{URL: textAt(v, "url"), Version: version})
		}
	}
	return all
}

// minor returns the first two numbers of a version.
func minor(version string) string {
	major, rest, two := strings.Cut(version, ".")
	if !two {
		return version
	}
	second, _, _ := strings.Cut(rest, ".")
	return version[:len(major)+1+len(second)]
}

func bindingOf(name string) Binding {
	for _, b := range []Binding{JSONRPC, REST} {
		if strings.EqualFold(name, string(b)) {
			return b
		}
	}
	return ""
}

// Endpoint returns the URL of a binding that a card names for a version: that of
// the version, else the first one of the binding; "" when there is none.
func Endpoint(all []Interface, b Binding, version string) (found string) {
	for _, i := range all {
		switch {
		case i.Binding != b:
		case minor(i.Version) == minor(cmp.Or(version, "0.3")):
			return i.URL
		case found == "":
			found = i.URL
		}
	}
	return found
}

// A CardEdit says what becomes of an agent's card behind the bus (A10).
type CardEdit struct {
	Base         string   // URL of the agent's mount, without a slash at its end
	Push         bool     // callers may have the agent call webhooks (A17)
	KeepSecurity bool     // the agent gets its callers' own credentials
	Hosts        []string // of the agent, with their ports, which must not remain
}

// RewriteCard returns a card with the URLs of this bus in place of the agent's,
// its security schemes replaced by the bus's, and without signatures, which
// would not hold (A10). What it does not know stays, but for a member that it
// edits and that is spelt in another case: a reader in Go takes either. It fails
// for what is no JSON object.
func RewriteCard(card []byte, e CardEdit) ([]byte, error) {
	c, err := decodeCard(card)
	if err != nil {
		return nil, err
	}
	_, listed := c["supportedInterfaces"].([]any)
	if _, named := c["url"].(string); !listed && !named {
		return nil, errors.New("the card names no endpoint")
	}
	respelt(c, "supportedInterfaces", "url", "preferredTransport", "additionalInterfaces", "capabilities", "signatures", "documentationUrl", "iconUrl")
	hosts := e.hosts(c)
	if len(hosts) > maxHosts {
		return nil, errors.New("the card names too many hosts")
	}
	e.interfaces(c)
	e.older(c)
	delete(c, "signatures")
	if !e.KeepSecurity {
		secure(c)
	}
	if able, ok := c["capabilities"].(map[string]any); ok && !e.Push {
		respelt(able, "pushNotifications")
		able["pushNotifications"] = false
	}
	for _, link := range []string{"documentationUrl", "iconUrl"} {
		if s, _ := c[link].(string); slices.Contains(hosts, hostOf(s)) {
			delete(c, link) // nothing is served there
		}
	}
	own := hostOf(e.Base)
	for _, host := range hosts {
		if host != own {
			scrub(c, host, own)
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err = enc.Encode(c)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// RewriteExtended is RewriteCard for the answer to a request for the extended
// card. An answer without a card is returned as it is. It fails for one in which
// another reader may find another card: in a result that stands there twice, or in
// another case, which a reader in Go takes for it.
func RewriteExtended(answer []byte, b Binding, e CardEdit) ([]byte, error) {
	root := gjson.ParseBytes(answer)
	switch {
	case len(answer) == 0:
		return answer, nil
	case !json.Valid(answer) || !root.IsObject(): // a reader may take what stands first in it
		return nil, errors.New("the answer is no JSON object")
	case b == REST:
		if root.Get("error").Exists() && !showsCard(root) {
			return answer, nil
		}
		return RewriteCard(answer, e)
	}
	return rewriteResult(answer, root, e)
}

// rewriteResult is RewriteExtended for JSON-RPC.
func rewriteResult(answer []byte, root gjson.Result, e CardEdit) ([]byte, error) {
	var card gjson.Result
	results := 0
	root.ForEach(func(key, value gjson.Result) bool {
		if strings.EqualFold(key.Str, "result") {
			results++
		}
		if key.Str == "result" {
			card = value
		}
		return true
	})
	if results > 1 || results == 1 && !card.Exists() {
		return nil, errors.New("the answer has its result twice, or in another case")
	}
	if !card.IsObject() {
		return answer, nil
	}
	edited, err := RewriteCard([]byte(card.Raw), e)
	if err != nil {
		return nil, err
	}
	return Set(answer, edited, "result")
}

// showsCard reports whether an object names an endpoint as a card does, in any case.
func showsCard(object gjson.Result) (found bool) {
	object.ForEach(func(key, _ gjson.Result) bool {
		found = strings.EqualFold(key.Str, "url") || strings.EqualFold(key.Str, "supportedInterfaces") || strings.EqualFold(key.Str, "additionalInterfaces")
		return !found
	})
	return found
}

func (e *CardEdit) mountOf(b Binding) string {
	if b == REST {
		return e.Base + "/rest"
	}
	return e.Base
}

// interfaces makes our mounts of the endpoints of A2A 1.0.
func (e *CardEdit) interfaces(c map[string]any) {
	all, ok := c["supportedInterfaces"].([]any)
	if !ok {
		return
	}
	kept, seen := []any{}, map[string]bool{}
	for _, v := range all {
		i, _ := v.(map[string]any)
		name, _ := i["protocolBinding"].(string)
		version, _ := i["protocolVersion"].(string)
		b := bindingOf(name)
		if key := string(b) + " " + version; b == "" || seen[key] {
			continue
		} else {
			seen[key] = true
		}
		respelt(i, "url")
		i["url"] = e.mountOf(b)
		kept = append(kept, i)
	}
	c["supportedInterfaces"] = kept
}

// older makes our mounts of the endpoints of A2A 0.3. One whose preferred
// binding is none of ours prefers the next one.
func (e *CardEdit) older(c map[string]any) {
	if _, ok := c["url"].(string); !ok {
		return
	}
	name, _ := c["preferredTransport"].(string)
	preferred := bindingOf(cmp.Or(name, string(JSONRPC)))
	seen := make(map[Binding]bool, 2)
	if preferred != "" {
		seen[preferred] = true
	}
	more, had := c["additionalInterfaces"].([]any)
	kept := []any{}
	for _, v := range more {
		i, _ := v.(map[string]any)
		name, _ := i["transport"].(string)
		b := bindingOf(name)
		if b == "" || seen[b] && b != preferred || len(kept) > 1 {
			continue
		}
		if preferred == "" {
			preferred = b
			c["preferredTransport"] = string(b)
		}
		seen[b] = true
		respelt(i, "url")
		i["url"] = e.mountOf(b)
		kept = append(kept, i)
	}
	if had {
		c["additionalInterfaces"] = kept
	}
	c["url"] = e.mountOf(preferred)
}

// secure replaces what the agent asks of its callers by what the bus asks: a
// bearer credential. A card of both versions tells it in the words of both: each
// reader takes the members that it knows, and the SDK for Go reads no card of 1.0
// whose schemes are in the words of 0.3 alone.
func secure(c map[string]any) {
	respelt(c, "securitySchemes", "security", "securityRequirements")
	scheme := map[string]any{}
	c["securitySchemes"] = map[string]any{bearer: scheme}
	delete(c, "security")
	delete(c, "securityRequirements")
	_, older := c["url"]
	if _, ok := c["supportedInterfaces"]; ok {
		scheme["httpAuthSecurityScheme"] = map[string]any{"scheme": "Bearer"}
		// The scopes are a plain list: the SDK for Go reads nothing else, others read both.
		c["securityRequirements"] = []any{map[string]any{"schemes": map[string]any{bearer: []any{}}}}
	}
	if older {
		scheme["type"], scheme["scheme"] = "http", "Bearer"
		c["security"] = []any{map[string]any{bearer: []any{}}}
	}
	skills, _ := c["skills"].([]any)
	for _, s := range skills {
		if skill, ok := s.(map[string]any); ok {
			respelt(skill, "security", "securityRequirements")
			delete(skill, "securityRequirements") // they name schemes that are gone
			delete(skill, "security")
		}
	}
}

// respelt removes from an object what has one of names in another case: to readers
// in Go it is that member too, and of two lists or objects they take some of each.
func respelt(object map[string]any, names ...string) {
	maps.DeleteFunc(object, func(key string, _ any) bool {
		return slices.ContainsFunc(names, func(name string) bool { return key != name && strings.EqualFold(key, name) })
	})
}

// hosts returns the hosts that must not remain: those given, and those of the
// endpoints.
func (e *CardEdit) hosts(c map[string]any) []string {
	hosts := append(slices.Clone(e.Hosts), hostOf(textAt(c, "url")))
	for _, v := range slices.Concat(listAt(c, "supportedInterfaces"), listAt(c, "additionalInterfaces")) {
		hosts = append(hosts, hostOf(textAt(v, "url")))
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	slices.Reverse(hosts) // a host with its port before the host
	return slices.DeleteFunc(hosts, func(h string) bool { return h == "" })
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// scrub replaces a host by ours in every text below v.
func scrub(v any, host, own string) any {
	switch v := v.(type) {
	case string:
		return replaceHost(v, host, own)
	case map[string]any:
		for k, m := range v {
			v[k] = scrub(m, host, own)
		}
	case []any:
		for i, m := range v {
			v[i] = scrub(m, host, own)
		}
	}
	return v
}

// replaceHost replaces host in a text, where it stands in a URL, and anywhere
// when it cannot be a word.
func replaceHost(text, host, own string) string {
	lower := strings.ToLower(text)
	if !strings.Contains(lower, host) || len(lower) != len(text) {
		return text
	}
	var out strings.Builder
	for from := 0; ; {
		i := strings.Index(lower[from:], host)
		if i < 0 {
			out.WriteString(text[from:])
			return out.String()
		}
		i += from
		end := i + len(host)
		linked := strings.HasSuffix(lower[:i], "://") || strings.HasSuffix(lower[:i], "@")
		word := i > 0 && hostByte(lower[i-1]) || end < len(lower) && hostByte(lower[end])
		out.WriteString(text[from:i])
		if from = end; (linked || strings.ContainsAny(host, ".:")) && !word {
			out.WriteString(own)
		} else {
			out.WriteString(text[i:end])
		}
	}
}

func hostByte(c byte) bool {
	return c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z'
}

// ETag returns the strong tag of a card.
func ETag(card []byte) string {
	sum := sha256.Sum256(card)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// WriteCard answers a request with a card (A10): with its tag, and with 304 to
// a caller that has it. private: the answer is for its caller only.
func WriteCard(w http.ResponseWriter, r *http.Request, card []byte, private bool) (status int) {
	h, tag := w.Header(), ETag(card)
	h.Set("Etag", tag)
	h.Set("Cache-Control", "public, max-age=300")
	if private {
		h.Set("Cache-Control", "private, max-age=300")
	}
	if matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified
	}
	h.Set("Content-Type", "application/json")
	_, _ = w.Write(card) // a caller that has left cannot be told
	return http.StatusOK
}

// matches reports whether a list of tags names one of them, weakly.
func matches(list, tag string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if t = strings.TrimPrefix(strings.TrimSpace(t), "W/"); t == tag || t == "*" {
			return true
		}
	}
	return false
}
