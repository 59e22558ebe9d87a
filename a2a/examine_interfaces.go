package a2a

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/agentbus/agentbus/internal/httpx"
)

// bindingGRPC is the binding of A2A that this bus knows and does not speak (A1).
const bindingGRPC = "GRPC"

// interfaces reads the ways to call the agent, and chooses the first that can be
// used (A37).
func (e *examiner) interfaces() {
	r := e.report
	e.currentInterfaces()
	if r.Shape == "0.3" {
		e.oldInterfaces()
	}
	var seen []InterfaceReport
	for i := range r.Interfaces {
		f := &r.Interfaces[i]
		e.judge(f)
		if f.Usable && slices.ContainsFunc(seen, func(s InterfaceReport) bool { return s.Binding == f.Binding && s.Version == f.Version }) {
			f.Usable, f.Why = false, "the one above has the same binding and version"
		}
		seen = append(seen, *f)
	}
	called := slices.IndexFunc(r.Interfaces, func(f InterfaceReport) bool { return f.Usable && !f.Compat })
	if called < 0 {
		called = slices.IndexFunc(r.Interfaces, func(f InterfaceReport) bool { return f.Usable })
	}
	if called < 0 {
		e.found(true, "there is no interface that this bus can use", "ask for JSONRPC or HTTP+JSON of A2A 1.0")
		return
	}
	f := &r.Interfaces[called]
	f.Called = true
	e.place(f.URL)
}

func (e *examiner) currentInterfaces() {
	var list []json.RawMessage
	e.read(e.members, "supportedInterfaces", &list)
	for _, raw := range list {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			e.found(false, "one of supportedInterfaces is no object, and is passed over", "")
			continue
		}
		var f InterfaceReport
		e.read(members, "url", &f.URL)
		e.read(members, "protocolBinding", &f.Binding)
		e.read(members, "protocolVersion", &f.Version)
		e.read(members, "tenant", &f.Tenant)
		e.report.Interfaces = append(e.report.Interfaces, f)
	}
}

func (e *examiner) oldInterfaces() {
	version, first := "0.3", InterfaceReport{Binding: string(JSONRPC)}
	e.read(e.members, "protocolVersion", &version)
	e.read(e.members, "url", &first.URL)
	e.read(e.members, "preferredTransport", &first.Binding)
	first.Version = version
	e.report.Interfaces = append(e.report.Interfaces, first)
	var more []struct{ Transport, URL string }
	e.read(e.members, "additionalInterfaces", &more)
	for _, m := range more {
		if m.URL != first.URL || m.Transport != first.Binding { // many cards name the first again
			e.report.Interfaces = append(e.report.Interfaces, InterfaceReport{URL: m.URL, Binding: m.Transport, Version: version})
		}
	}
}

// judge says whether the bus can use f.
func (e *examiner) judge(f *InterfaceReport) {
	u, err := url.Parse(f.URL)
	switch {
	case strings.EqualFold(f.Binding, bindingGRPC):
		f.Why = "this bus does not speak gRPC (A1)"
	case bindingOf(f.Binding) == "":
		f.Why = "this bus does not know the binding"
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		f.Why = "its URL is not an absolute http or https URL"
	case u.User != nil:
		f.Why = "its URL holds a user or password"
	default:
		e.version(f)
	}
}

func (e *examiner) version(f *InterfaceReport) {
	major, _, _ := strings.Cut(f.Version, ".")
	switch {
	case f.Version == "":
		f.Usable, f.Why = true, "it names no version; 1.0 is assumed"
	case major == "1":
		f.Usable = true
	case minor(f.Version) == "0.3":
		f.Usable, f.Compat, f.Why = true, true, `with a2a.compat: "0.3"`
	default:
		f.Why = "this bus speaks A2A 1.0, and 0.3 with a2a.compat"
	}
}

// place looks at where the interface is that is called.
func (e *examiner) place(at string) {
	u, err := url.Parse(at)
	if err != nil {
		return
	}
	host := u.Hostname()
	local := httpx.Loopback(host) || onDomain(host, "localhost")
	switch {
	case strings.EqualFold(host, e.at.Hostname()):
	case local:
		e.found(false, "its interface is at "+host+", which is whatever machine reads the card, and the card is at "+e.at.Hostname(), "have the agent name its public URL")
	default:
		e.found(false, "its interface is at another host than its card: "+u.Host+", not "+e.at.Host, "make sure that both are the agent's: calls and credentials go to "+u.Host)
	}
	if u.Scheme == "http" && !local {
		e.found(false, "it is called over plain HTTP, so credentials are not sent there (P24)", "ask for https, or set allow_plaintext on the agent")
	}
}
