package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/agentbus/agentbus"
)

// route finds the agent (G1): by the path below /agents, else by the model in
// the body. A run that the caller did not name is minted here.
func (g *Gateway) route(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if err := g.findTarget(r, x); err != nil {
			x.refuse(w, err)
			return
		}
		if x.minted && x.lineage.Run == "" {
			x.lineage.Run = agentbus.NewRunID()
			x.lineage.Turn = x.lineage.Run.Turn(0, agentbus.Speaker(x.target.Name))
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Gateway) findTarget(r *http.Request, x *exchange) error {
	if x.envelope != nil {
		return g.findA2A(r, x)
	}
	name, below, err := readPath(r)
	if x.record.Agent, x.path = name, below; err != nil {
		return err
	}
	x.dialect = dialectOf(r.Method, x.path)
	if x.dialect != dialectOther {
		if x.peek, err = peekBody(x.body); err != nil {
			return unreadable(r, err)
		}
		x.correlate()
	}
	if !strings.HasPrefix(r.URL.EscapedPath(), agentsPrefix) {
		if name = x.peek.model; name == "" {
			return invalidRequest("the body names no model", `send the name of an agent as "model"`)
		}
	}
	target, ok := g.cfg.Router.Route(name)
	if !ok {
		return g.notCallable(x, name)
	}
	x.target = target
	if x.bridged() && (target.A2A.Bridge == nil || strings.HasPrefix(r.URL.EscapedPath(), agentsPrefix)) {
		return speaksA2A(target)
	}
	return nil
}

func speaksA2A(t *Target) error {
	next := "call it at " + a2aPrefix + t.Name
	if t.A2A.Bridge != nil {
		next += ", or as a model at " + chatPath
	}
	return &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: "agent " + t.Name + " speaks A2A; " + next,
		Explain: &agentbus.Explain{Rule: "A3", Next: next},
	}
}

// readPath returns the agent that /agents/{name}/{path…} names, and the path
// below the agent's base, escaped as it came. On the other routes the body names
// the agent.
func readPath(r *http.Request) (name, below string, err error) {
	rest, prefixed := strings.CutPrefix(r.URL.EscapedPath(), agentsPrefix)
	if !prefixed {
		return "", strings.TrimPrefix(r.URL.Path, "/v1"), upgrades(r)
	}
	name, below, slash := strings.Cut(rest, "/")
	if slash {
		below = "/" + below
	}
	err = passable(r, rest)
	if plain, e := url.PathUnescape(name); e == nil {
		name = plain
	}
	return name, below, err
}

// unreadable says why the body of a request of a dialect cannot be read: err,
// unless it came in a coding. It would have to be forwarded as it came (G1), and
// what it comes to could not be bounded.
func unreadable(r *http.Request, err error) error {
	coding := strings.Join(r.Header["Content-Encoding"], ",")
	if coding == "" || strings.EqualFold(coding, "identity") {
		return err
	}
	return &agentbus.Error{
		Code: agentbus.CodeUnsupportedContent, Message: "the body came in a content coding, and is read here",
		Explain: &agentbus.Explain{Rule: "G9", Supported: []string{"identity"}, Next: "send the body without Content-Encoding"},
	}
}

// passable says why a request to an agent's own path is not passed on, or nil.
func passable(r *http.Request, path string) error {
	switch {
	case r.Method == http.MethodTrace || r.Method == http.MethodConnect: // TRACE tells the agent's credential back
		return invalidPath("G12", r.Method+" is not passed on to agents", "use another method")
	case r.Method != http.MethodPost && strings.EqualFold(r.Method, http.MethodPost): // an agent may take it for the call that it is not here
		return invalidPath("G20", "a method is written in upper case", "send POST")
	case climbs(path):
		return invalidPath("G1", "the path has a segment of dots, by which it could leave the agent's API", "send the path it resolves to")
	}
	return upgrades(r)
}

// upgrades says why a request that asks for another protocol is not served, or nil.
func upgrades(r *http.Request) error {
	up := r.Header.Get("Upgrade")
	if up == "" || strings.EqualFold(up, "h2c") { // which a client offers, and goes on without
		return nil
	}
	return invalidPath("G12", "connections are not upgraded on agent routes", "send the request without Upgrade")
}

// climbs reports whether a server could find . or .. among the segments of an
// escaped path, however often it unescapes it.
func climbs(path string) bool {
	for range 4 {
		for segment := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '/' || c == '\\' }) {
			if segment, _, _ = strings.Cut(segment, ";"); segment == "." || segment == ".." {
				return true
			}
		}
		plain, err := url.PathUnescape(path)
		if err != nil || plain == path {
			return false
		}
		path = plain
	}
	return true // nobody escapes so often for a reason
}

func invalidPath(rule, message, next string) error {
	return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: message, Explain: &agentbus.Explain{Rule: rule, Next: next}}
}

func dialectOf(method, path string) dialect {
	switch {
	case method != http.MethodPost:
	case strings.HasSuffix(path, "/chat/completions"):
		return dialectChat
	case strings.HasSuffix(path, "/responses"):
		return dialectResponses
	}
	return dialectOther
}
