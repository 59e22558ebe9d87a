package a2a

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// How a credential is given to an agent, in the configuration.
const (
	GiveKey     = "api_key_env"    // Authorization: Bearer, from a variable
	GiveHeader  = "headers"        // a header of that name, from a variable
	GiveCookie  = "headers.Cookie" // a cookie, from a variable
	giveNothing = ""               // the bus cannot
)

// A SchemeReport is a way to authenticate at an agent, and how the bus does.
type SchemeReport struct {
	Name string `json:"name"`
	Kind string `json:"kind"`           // apiKey, http, oauth2, openIdConnect, mutualTLS, or another's
	How  string `json:"how,omitempty"`  // for people: the scheme of http, where the key of apiKey goes
	Give string `json:"give,omitempty"` // GiveKey, GiveHeader or GiveCookie; "": the bus cannot
	Note string `json:"note,omitempty"`
	// Header is the name of the header, or of the cookie.
	Header string `json:"header,omitempty"`
}

// A wireScheme is a security scheme in any of the shapes it has on the wire: A2A 1.0
// wraps it by its kind, 0.3 tells the kind by type, and the JavaScript SDK
// writes the wrapping as its generator names it.
type wireScheme struct {
	Type             string `json:"type"`
	Scheme           any    `json:"scheme"` // of http, or the wrapping of the JavaScript SDK
	In               string `json:"in"`
	Location         string `json:"location"`
	Name             string `json:"name"`
	OpenIDConnectURL string `json:"openIdConnectUrl"`
}

// schemeKinds are the wrappings of A2A 1.0.
var schemeKinds = map[string]string{
	"apiKeySecurityScheme": "apiKey", "httpAuthSecurityScheme": "http", "oauth2SecurityScheme": "oauth2",
	"openIdConnectSecurityScheme": "openIdConnect", "mtlsSecurityScheme": "mutualTLS",
}

// security reads how callers authenticate, and whether the bus can.
func (e *examiner) security() {
	var named map[string]map[string]json.RawMessage
	e.read(e.members, "securitySchemes", &named)
	r := e.report
	usable := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		s := e.scheme(name, named[name])
		r.Schemes = append(r.Schemes, s)
		usable[name] = s.Give != giveNothing
	}
	e.required()
	easy := func(names []string) bool { // the bus needs nothing but a key that lasts
		return !slices.ContainsFunc(r.Schemes, func(s SchemeReport) bool { return s.Note != "" && slices.Contains(names, s.Name) })
	}
	for i, names := range r.Required {
		can := !slices.ContainsFunc(names, func(name string) bool { return !usable[name] })
		if can && (r.Chosen < 0 || easy(names) && !easy(r.Required[r.Chosen])) {
			r.Chosen = i
		}
		for _, name := range names {
			if _, declared := named[name]; !declared {
				e.found(false, "it asks for a security scheme that it does not declare: "+name, "")
			}
		}
	}
	if len(r.Required) > 0 && r.Chosen < 0 {
		e.report.Findings = append(e.report.Findings, noWayIn)
	}
	if len(r.Required) == 0 && len(r.Schemes) > 0 {
		e.found(false, "it declares security schemes and requires none", "call it without a key first")
	}
}

var noWayIn = Finding{
	Blocks: true, What: "none of the ways it lets callers authenticate is one that this bus can use", Next: "ask its operator for a bearer token, or for a key in a header",
}

// required reads the alternatives. Each is an object of names: in A2A 1.0 below
// schemes.
func (e *examiner) required() {
	var list []map[string]json.RawMessage
	if !e.read(e.members, "securityRequirements", &list) {
		e.read(e.members, "security", &list)
	}
	for _, alternative := range list {
		var names map[string]json.RawMessage
		if raw, wrapped := alternative["schemes"]; !wrapped || json.Unmarshal(raw, &names) != nil {
			names = alternative
		}
		e.report.Required = append(e.report.Required, append([]string{}, slices.Sorted(maps.Keys(names))...))
	}
}

// scheme reads one scheme out of whatever wraps it.
func (e *examiner) scheme(name string, members map[string]json.RawMessage) SchemeReport {
	r := SchemeReport{Name: name}
	inner, generated := members, struct {
		Case  string                     `json:"$case"`
		Value map[string]json.RawMessage `json:"value"`
	}{}
	if json.Unmarshal(members["scheme"], &generated) == nil && schemeKinds[generated.Case] != "" {
		r.Kind, inner = schemeKinds[generated.Case], generated.Value
		e.found(false, "the security scheme "+name+" is written as the JavaScript SDK's generator names it, which other SDKs do not read", "behind this bus callers see the bus's own schemes instead (A10)")
	}
	for wrapping, kind := range schemeKinds {
		if raw := members[wrapping]; raw != nil && json.Unmarshal(raw, &inner) == nil {
			r.Kind = kind
		}
	}
	var s wireScheme
	if raw, err := json.Marshal(inner); err != nil || json.Unmarshal(raw, &s) != nil {
		e.found(false, "the security scheme "+name+" cannot be read, and is passed over", "")
		return r
	}
	if r.Kind == "" {
		r.Kind = s.Type
	}
	if s.In == "" {
		s.In = s.Location
	}
	r.judge(s)
	return r
}

var headerNameRE = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")

// judge says how the bus would authenticate by s.
func (r *SchemeReport) judge(s wireScheme) {
	text, _ := s.Scheme.(string)
	switch {
	case r.Kind == "http" && strings.EqualFold(text, "bearer"):
		r.How, r.Give = "a bearer token", GiveKey
	case r.Kind == "http":
		r.How, r.Note = "HTTP "+text, "the bus sends bearer tokens only"
	case r.Kind == "apiKey" && s.In == "header" && strings.EqualFold(s.Name, "authorization"):
		r.How, r.Give, r.Note = "a key in Authorization", GiveKey, "the bus writes Bearer before it"
	case r.Kind == "apiKey" && s.In == "header" && headerNameRE.MatchString(s.Name):
		r.How, r.Give, r.Header = "a key in the header "+s.Name, GiveHeader, s.Name
	case r.Kind == "apiKey" && s.In == "cookie" && headerNameRE.MatchString(s.Name):
		r.How, r.Give, r.Header = "a key in the cookie "+s.Name, GiveCookie, s.Name
	case r.Kind == "apiKey":
		r.How, r.Note = "a key in the "+s.In+" "+s.Name, "the bus sends keys in headers only"
	case r.Kind == "oauth2", r.Kind == "openIdConnect":
		r.How, r.Give, r.Note = "an access token", GiveKey, "the bus does not fetch tokens: bring one that lasts, or hand on the caller's own with auth: passthrough"
	case r.Kind == "mutualTLS":
		r.How, r.Note = "a client certificate", "the bus shows agents none"
	default:
		r.Note = "the bus does not know this kind of scheme"
	}
}
