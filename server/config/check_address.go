package config

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// at reads the address of an agent (C34).
func (l *loader) at(a *Agent, path string) {
	path = join(path, "address")
	if a.Address == "" || l.faulty(path) {
		return
	}
	at, err := agentbus.ParseAddress(a.Address)
	switch {
	case err != nil:
		l.fault(path, agentbus.AsError(err).Message, "write it as \"@critic@bots.example.com\"")
	case at.Local() == "." || at.Local() == "..": // its card could not be asked for
		l.fault(path, "what stands before the domain would be read as a folder", "choose a name of letters")
	default:
		a.At = at
	}
}

// addresses checks that no two agents answer to one address (C34), and that
// others can follow where an address leads (C35). owner has the agents by the
// other names they answer to.
func (l *loader) addresses(sorted []string, owner map[string]string) {
	aliases := map[string]string{} // key of an address → agent that has it as alias
	for alias, name := range owner {
		if at, err := agentbus.ParseAddress(alias); err == nil {
			aliases[at.Key()] = name
		}
	}
	byAddress, byLocal := map[string]string{}, map[string]string{}
	for _, name := range sorted {
		at, path := l.c.Agents[name].At, join(join("agents", name), "address")
		if at.IsZero() {
			continue
		}
		local := strings.ToLower(at.Local())
		other, taken := byAddress[at.Key()]
		if alias, is := aliases[at.Key()]; is && alias != name && !taken {
			other, taken = alias, true
		}
		switch {
		case taken:
			l.fault(path, "it is the address of agent "+other+" too", "give each agent an address of its own")
		case byLocal[local] != "" && l.c.PublicURL != "":
			l.fault(path, "under public_url, the card of this agent and that of "+byLocal[local]+" would stand at one place", "choose another name before the domain, or leave public_url out")
		default:
			l.reachable(at, path)
		}
		byAddress[at.Key()], byLocal[local] = name, name
	}
}

// reachable warns of an address that leads others to where they do not go.
func (l *loader) reachable(at agentbus.Address, path string) {
	u, err := url.Parse(l.c.PublicURL)
	if err != nil || u.Host == "" {
		return
	}
	if host := strings.ToLower(u.Hostname()); host != at.Domain() && !strings.HasSuffix(host, "."+at.Domain()) {
		l.warn(path, "public_url is not on the domain of the address, so others will not follow it (C35)", "use a public_url on "+at.Domain()+" or below it")
	} else if u.Scheme != "https" && !loopback(host) {
		l.warn(path, "public_url is not https, so others will not follow the address (C33)", "use an https public_url")
	}
}

// resolver checks whom the bus looks for.
func (l *loader) resolver() {
	r, path := &l.c.Resolver, "resolver"
	for i, domain := range r.Domains {
		p := item(join(path, "domains"), i)
		if l.faulty(p) {
			continue
		}
		if a, err := agentbus.ParseAddress("a@" + domain); err != nil || a.Domain() != domain {
			l.fault(p, "this is not the domain of an address", "write two labels or more in lower case, such as bots.example.com; others than ASCII in their xn-- form")
		}
	}
	for i, host := range r.AllowHosts {
		p := item(join(path, "allow_hosts"), i)
		if !l.faulty(p) && !isHost(strings.TrimPrefix(host, "http://")) {
			l.fault(p, "this is neither host nor host:port", "write it as bus.internal, bus.internal:8080 or [::1]:8080")
		}
	}
}

// isHost reports whether text is a host, or a host and a port.
func isHost(text string) bool {
	u, err := url.Parse("//" + text)
	if err != nil || u.Host != text || u.Hostname() == "" || strings.HasSuffix(text, ":") {
		return false
	}
	if _, port, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n > 0
	}
	return !strings.Contains(u.Hostname(), ":") || text[0] == '['
}
