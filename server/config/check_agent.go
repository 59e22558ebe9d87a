package config

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

const (
	headerPattern = `^[!#$%&'*+.^_|~0-9A-Za-z-]{1,128}$`
	aliasPattern  = `^[!#-+\x2d-~]{1,200}$`
)

var (
	headerRE  = regexp.MustCompile(headerPattern)
	versionRE = regexp.MustCompile(`^[0-9]+[.][0-9]+$`)
	aliasRE   = regexp.MustCompile(aliasPattern)

	// ownHeaders are set by the bus itself, or mean the connection.
	ownHeaders = []string{
		"authorization", "proxy-authorization", "host", "content-length", "transfer-encoding", "connection", "keep-alive",
		"te", "trailer", "upgrade", "via", "accept-encoding", "idempotency-key",
	}
)

// builtinAliases returns the names under which the bus offers an agent beside
// its own and those it is given (G1).
func builtinAliases(name string, k Kind) []string {
	return []string{"agent/" + name, "bridge/" + string(k) + "/" + name}
}

// agents checks each agent, and that no two answer to one name (G1).
func (l *loader) agents() {
	owner := map[string]string{} // name or alias → agent
	sorted := names(l, "agents", l.c.Agents)
	for _, name := range sorted {
		owner[name] = name
		for _, alias := range builtinAliases(name, l.c.Agents[name].Kind) {
			owner[alias] = name
		}
	}
	for _, name := range sorted {
		a, path := l.c.Agents[name], join("agents", name)
		for i, alias := range a.Aliases {
			p := item(join(path, "aliases"), i)
			switch other, taken := owner[alias]; {
			case l.faulty(p): // it could not be read
			case taken && other == name:
				l.fault(p, "the agent answers to "+quote(alias)+" already", "remove the alias")
			case taken:
				l.fault(p, quote(alias)+" is a name of agent "+other, "choose another alias")
			case !aliasRE.MatchString(alias):
				l.fault(p, "this is not an alias", "use 1 to 200 visible ASCII characters without comma and double quote")
			default:
				owner[alias] = name
			}
		}
		l.agent(&a, path)
		l.at(&a, path)
		l.c.Agents[name] = a
	}
	l.addresses(sorted, owner)
}

func (l *loader) agent(a *Agent, path string) {
	if a.Kind == "" {
		return // reported where it was read
	}
	v := reflect.ValueOf(a).Elem()
	for _, f := range fieldsOf(v.Type()) {
		_, set := l.c.origins[join(path, f.name)]
		_, other := l.c.origins[join(path, f.or)]
		switch {
		case f.or != "" && other && f.belongs(a.Kind):
			if set {
				l.fault(join(path, f.or), "it stands in place of "+f.name+", and both are there", "keep one of the two")
			}
		case f.later:
		case set && !f.belongs(a.Kind):
			l.fault(join(path, f.name), "the key belongs to agents of kind "+oneOf(f.kinds)+", and this is one of kind "+string(a.Kind), "remove it, or change kind")
		case f.kinds != nil && f.required && f.belongs(a.Kind) && v.Field(f.index).IsZero() && !l.faulty(join(path, f.name)):
			l.fault(join(path, f.name), "an agent of kind "+string(a.Kind)+" needs this key", "add "+f.name+": "+wanted(f))
		}
	}
	switch a.Kind {
	case KindOpenAI:
		l.remote(a, path)
	case KindA2A:
		l.remote(a, path)
		if a.DefaultVersion != "" && !versionRE.MatchString(a.DefaultVersion) {
			l.fault(join(path, "default_version"), "this is not a version of A2A", "write it like \"1.0\"")
		}
		for i, name := range a.ForwardHeaders {
			l.header(item(join(path, "forward_headers"), i), name)
		}
	case KindConversation:
		if _, ok := l.c.Conversations[a.Conversation]; !ok && a.Conversation != "" {
			l.fault(join(path, "conversation"), "there is no conversation "+quote(a.Conversation), known("conversations", a.Conversation, l.c.Conversations))
		}
	case KindExec:
		l.program(a, path)
	case KindBuiltin:
	}
}

// program checks an agent that is a program.
func (l *loader) program(a *Agent, path string) {
	command := join(path, "command")
	if _, set := l.c.origins[command]; set && !l.faulty(command) && (len(a.Command) == 0 || a.Command[0] == "") {
		l.fault(command, "the program has no name", "write it as a list: the program, then its arguments")
	}
	for i, arg := range a.Command {
		if strings.ContainsRune(arg, 0) {
			l.fault(item(command, i), "an argument cannot hold a NUL", "remove it")
		}
	}
	fields := join(path, "fields")
	switch {
	case a.Mode != ExecWorker:
	case a.Affinity != AffinityConversation:
		l.fault(join(path, "mode"), "a worker belongs to one conversation of one payer, and is never shared", "add affinity: conversation, or remove mode")
	case a.Input == ExecArg || a.Output != ExecText && a.Output != "":
		l.fault(join(path, "mode"), "a worker has an input and an output of its own", "remove input and output, or mode")
	}
	switch {
	case a.Output == ExecJSONL && a.Fields.Text == "" && a.Fields.Result == "":
		l.fault(join(path, "output"), "nothing says what in the lines is the answer", "name it with fields: {text: PATH}, or with result")
	case a.Output != ExecJSONL && !reflect.ValueOf(a.Fields).IsZero():
		l.fault(fields, "fields are of output jsonl", "remove them, or write output: jsonl")
	}
	l.session(a, join(path, "session"))
	for i, name := range a.Env {
		l.variable(item(join(path, "env"), i), name)
	}
	if a.ForwardEnv != "" {
		l.variable(join(path, "forward_authorization_env"), a.ForwardEnv)
	}
	if a.ShareDir && a.Dir == "" {
		l.fault(join(path, "share_dir"), "there is no directory to share", "name it with dir, or remove share_dir")
	}
}

// session checks how a program is told of its conversations.
func (l *loader) session(a *Agent, path string) {
	s := a.Session
	if len(s.First) == 0 && len(s.Next) == 0 {
		return
	}
	switch {
	case a.Mode == ExecWorker:
		l.fault(path, "a worker keeps its conversation by itself", "remove session, or mode")
	case a.Affinity != AffinityConversation:
		l.fault(path, "a session belongs to one conversation of one payer, and is never shared", "add affinity: conversation, or remove session")
	}
	if !slices.ContainsFunc(s.Next, func(arg string) bool { return strings.Contains(arg, "{session}") }) {
		l.fault(join(path, "next"), "the turns after the first one are not told their session", `name it, such as next: [--resume, "{session}"]`)
	}
	for i, arg := range slices.Concat(s.First, s.Next) {
		if strings.ContainsRune(arg, 0) {
			l.fault(item(path, i), "an argument cannot hold a NUL", "remove it")
		}
	}
}

// variable checks the name of a variable that a program is to see. Those of its
// turn are the bus's to set (B2).
func (l *loader) variable(path, name string) {
	switch {
	case !nameRE.MatchString(name):
		l.fault(path, "this is not the name of a variable", "use letters, digits and _, and begin with a letter")
	case strings.HasPrefix(name, "AGENTBUS_"), name == "TRACEPARENT":
		l.fault(path, "the bus sets this variable itself", "remove it")
	}
}

// remote checks an agent that is reached at URLs.
func (l *loader) remote(a *Agent, path string) {
	text, ok := l.secretText(path, "api_key_env", a.APIKeyEnv, "api_key_file", a.APIKeyFile)
	if ok {
		a.Authorization = agentbus.NewCredential("Bearer " + text)
	}
	if a.Auth == AuthPassthrough && (a.APIKeyEnv != "" || a.APIKeyFile != "") {
		l.fault(join(path, "auth"), "passthrough sends the caller's Authorization, and the agent has a key of its own", "keep one of auth and the key")
	}
	for name := range a.Headers {
		l.header(join(join(path, "headers"), name), name)
	}
	l.upstreams(a, path)
}

// maxURLs is the most URLs that one agent may have.
const maxURLs = 32

// upstreams checks where an agent is reached (G13).
func (l *loader) upstreams(a *Agent, path string) {
	if a.URL != "" {
		l.upstream(a, join(path, "url"), a.URL)
	}
	urls, first := join(path, "urls"), map[string]int{}
	for i, text := range a.URLs {
		p := item(urls, i)
		if l.faulty(p) || !l.upstream(a, p, text) {
			continue
		}
		bare := strings.TrimSuffix(text, "/")
		if at, twice := first[bare]; twice {
			l.fault(p, "the URL is that of "+item(urls, at)+" too", "remove one of them")
			continue
		}
		first[bare] = i
	}
	if _, set := l.c.origins[urls]; set && !l.faulty(urls) && (len(a.URLs) == 0 || len(a.URLs) > maxURLs) {
		l.fault(urls, "an agent has 1 to "+strconv.Itoa(maxURLs)+" URLs", "write that many, or url: and the only one")
	}
	if a.Eject.AtMost < a.Eject.For && !l.faulty(join(path, "eject.at_most")) {
		l.fault(join(path, "eject.at_most"), "it is less than eject.for, "+FormatDuration(a.Eject.For), "write as much or more")
	}
}

// upstream checks one URL of an agent, and warns of one over which no
// credential will be sent.
func (l *loader) upstream(a *Agent, path, text string) bool {
	u, ok := l.httpURL(path, text)
	if ok && u.Scheme == "http" && !loopback(u.Hostname()) && !a.AllowPlaintext {
		l.warn(path, "calls that carry a credential will be refused: it would cross the network in plain text (P24)", "use https, or set allow_plaintext: true on the agent")
	}
	return ok
}

// header checks one configured header. Those of the protocol cannot be
// overridden (K6), but for the two of kagent.
func (l *loader) header(path, name string) {
	lower := strings.ToLower(name)
	protocol := agentbus.IsProtocolHeader(name) || strings.HasPrefix(strings.ReplaceAll(lower, "_", "-"), "x-tangle-")
	switch {
	case !headerRE.MatchString(name):
		l.fault(path, "this is not the name of a header", "use letters, digits and -")
	case protocol && lower != agentbus.RootContextIDHeader && lower != agentbus.ParentContextIDHeader:
		l.fault(path, "a header of the protocol cannot be set (K6)", "remove it; the bus writes it from the lineage of the call")
	case lower == "authorization":
		l.fault(path, "the agent's Authorization is not set here", "name the variable that holds its key with api_key_env, or the file with api_key_file")
	case slices.Contains(ownHeaders, lower):
		l.fault(path, "the bus sets this header itself", "remove it")
	}
}

// known tells what could have been meant by name.
func known[T any](what, name string, m map[string]T) string {
	var all []string
	for n := range m {
		all = append(all, n)
	}
	slices.Sort(all)
	if near := nearest(name, all); near != "" {
		return "did you mean " + near + "?"
	}
	if len(all) == 0 || len(all) > 12 {
		return "declare it under " + what
	}
	return "declare it under " + what + ", or name " + oneOf(all)
}
