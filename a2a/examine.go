package a2a

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus/internal/rawjson"
)

// A CardReport is what the card of an A2A agent says, and what of it this bus
// can use.
type CardReport struct {
	URL         string `json:"url"`               // of the card
	Address     string `json:"address,omitempty"` // that led to it
	Name        string `json:"name"`
	Version     string `json:"version"`
	Description string `json:"description,omitempty"`
	Shape       string `json:"shape"` // "1.0", "0.3", or "1.0 and 0.3"

	Usable     bool              `json:"usable"` // the bus can call it: none of the Findings blocks
	Interfaces []InterfaceReport `json:"interfaces"`
	Streaming  bool              `json:"streaming"`
	Push       bool              `json:"push_notifications"`
	Extended   bool              `json:"extended_card"`
	Skills     int               `json:"skills"`     // how many the card lists
	Signatures int               `json:"signatures"` // how many the card has, none of them verified
	Extensions []ExtensionReport `json:"extensions"`
	Schemes    []SchemeReport    `json:"security_schemes"`
	// Required is the alternatives of what an agent asks its callers for, each a
	// list of names of Schemes; none: it asks for nothing.
	Required [][]string `json:"security_required"`
	// Chosen is the alternative that the bus can meet, of Required; -1: none.
	Chosen   int       `json:"security_chosen"`
	Findings []Finding `json:"findings"`
}

// An InterfaceReport is one way to call an agent.
type InterfaceReport struct {
	URL     string `json:"url"`
	Binding string `json:"binding"` // JSONRPC, HTTP+JSON, GRPC, or another's
	Version string `json:"version"`
	Tenant  string `json:"tenant,omitempty"`
	Usable  bool   `json:"usable"`
	Called  bool   `json:"called"` // it is the one that the bus calls (A37)
	Compat  bool   `json:"compat"` // only with a2a.compat, as it is of 0.3
	Why     string `json:"why,omitempty"`
}

// An ExtensionReport is an extension that an agent knows, or asks for.
type ExtensionReport struct {
	URI      string `json:"uri"`
	Required bool   `json:"required"`
	Known    string `json:"known,omitempty"` // what the bus makes of it; "": nothing
}

// A Finding is what somebody should know about a card.
type Finding struct {
	Blocks bool   `json:"blocks"` // the agent cannot be called until it is mended
	What   string `json:"what"`
	Next   string `json:"next,omitempty"`
}

// knownExtensions are those the bus knows, and what it does with them.
var knownExtensions = map[string]string{
	"https://github.com/google-agentic-commerce/a2a-x402/blob/main/spec/v0.2": "x402 payments, passed on as they are (C32)",
	"https://github.com/google-a2a/a2a-x402/v0.1":                             "x402 payments, passed on as they are (C32)",
	"https://mentionable.dev/ns/policy/v0.1":                                  "consent, payment and refusals, shown to the user (C27)",
	"https://mentionable.dev/ns/identity/v0.1":                                "who a call is made for (C20)",
}

// Examine reads the card of an agent, which stands at at, in the shape of A2A 1.0
// or 0.3. It reads what can be read: a member that is missing or of another kind
// is a finding. ok is false for what is no card at all.
func Examine(card []byte, at *url.URL) (r *CardReport, ok bool) {
	e := examiner{at: at, report: &CardReport{
		URL: at.String(), Chosen: -1, Interfaces: []InterfaceReport{}, Extensions: []ExtensionReport{}, Schemes: []SchemeReport{}, Required: [][]string{}, Findings: []Finding{},
	}}
	if json.Unmarshal(card, &e.members) != nil || e.members == nil {
		return nil, false
	}
	r = e.report
	e.twins(card)
	e.shape()
	if r.Shape == "" && e.members["name"] == nil && e.members["skills"] == nil {
		return nil, false
	}
	e.who()
	e.interfaces()
	e.capabilities()
	e.security()
	e.missing()
	r.Usable = !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Blocks })
	return r, true
}

// An examiner is in the middle of reading a card.
type examiner struct {
	at      *url.URL
	members map[string]json.RawMessage
	report  *CardReport
}

func (e *examiner) found(blocks bool, what, next string) {
	e.report.Findings = append(e.report.Findings, Finding{blocks, what, next})
}

// read reads the member of that name of an object; another kind of value is a
// finding. A member that is null is not there.
func (e *examiner) read(object map[string]json.RawMessage, name string, v any) bool {
	raw := object[name]
	if raw == nil || string(raw) == "null" {
		return false
	}
	if json.Unmarshal(raw, v) != nil {
		e.found(false, name+" is not of the kind that A2A gives it, and is passed over", "")
		return false
	}
	return true
}

// twins names the members that stand there twice, or in two spellings: readers of
// JSON differ in which they take.
func (e *examiner) twins(card []byte) {
	seen := map[string]int{}
	rawjson.Members(card, rawjson.Space(card, 0), func(m rawjson.Member) bool {
		name := strings.ToLower(string(m.Key))
		if seen[name]++; seen[name] == 2 {
			e.found(false, "the member "+strconv.Quote(string(m.Key))+" stands twice in the card, and clients differ in which they take", "ask its operator for a card with one; this bus takes the last one that is spelt as A2A has it")
		}
		return true
	})
}

func (e *examiner) shape() {
	_, current := e.members["supportedInterfaces"]
	_, old := e.members["url"]
	switch {
	case current && old:
		e.report.Shape = "1.0 and 0.3"
	case current:
		e.report.Shape = "1.0"
	case old:
		e.report.Shape = "0.3"
		e.found(false, "the card is in the shape of A2A 0.3, which is deprecated", "ask for one of A2A 1.0, or set a2a.compat to \"0.3\"")
	}
}

func (e *examiner) who() {
	r := e.report
	e.read(e.members, "name", &r.Name)
	e.read(e.members, "version", &r.Version)
	e.read(e.members, "description", &r.Description)
	var signatures, skills []json.RawMessage
	e.read(e.members, "signatures", &signatures)
	e.read(e.members, "skills", &skills)
	r.Signatures, r.Skills = len(signatures), len(skills)
}

// capabilities reads what the agent can do, and what it asks of its callers.
func (e *examiner) capabilities() {
	var members map[string]json.RawMessage
	r := e.report
	e.read(e.members, "capabilities", &members)
	e.read(members, "streaming", &r.Streaming)
	e.read(members, "pushNotifications", &r.Push)
	e.read(members, "extendedAgentCard", &r.Extended)
	if r.Shape == "0.3" {
		e.read(e.members, "supportsAuthenticatedExtendedCard", &r.Extended)
	}
	var list []struct {
		URI      string
		Required bool
	}
	e.read(members, "extensions", &list)
	for _, x := range list {
		r.Extensions = append(r.Extensions, ExtensionReport{x.URI, x.Required, knownExtensions[x.URI]})
		if x.Required && knownExtensions[x.URI] == "" {
			e.found(true, "it requires an extension that this bus does not know: "+x.URI, "ask its operator whether it can be called without")
		}
	}
}

// missing names the members that every card has, and that this one lacks.
func (e *examiner) missing() {
	wanted := []string{"name", "description", "version", "capabilities", "defaultInputModes", "defaultOutputModes", "skills"}
	if e.report.Shape == "0.3" {
		wanted = append(wanted, "protocolVersion")
	} else {
		wanted = append(wanted, "supportedInterfaces")
	}
	var none []string
	for _, name := range wanted {
		if raw := e.members[name]; raw == nil || string(raw) == "null" || string(raw) == `""` {
			none = append(none, name)
		}
	}
	var skills []map[string]json.RawMessage
	_ = json.Unmarshal(e.members["skills"], &skills) // that it is no list was found before
	for i, s := range skills {
		for _, name := range []string{"id", "name", "description", "tags"} {
			if s[name] == nil {
				none = append(none, "skills["+strconv.Itoa(i)+"]."+name)
			}
		}
	}
	if len(none) > 0 {
		const most = 12
		more := ""
		if len(none) > most {
			more = " and " + strconv.Itoa(len(none)-most) + " more"
		}
		e.found(false, "the card lacks what A2A asks for: "+strings.Join(none[:min(len(none), most)], ", ")+more, "other clients may refuse it")
	}
}
