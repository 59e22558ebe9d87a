package execagent

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// The variables that every program has (B2).
const (
	EnvURL           = "AGENTBUS_URL"   // where the bus is; not set while it listens nowhere
	EnvToken         = "AGENTBUS_TOKEN" // what it calls the bus with, until its turn ends
	EnvRunID         = "AGENTBUS_RUN_ID"
	EnvTurnID        = "AGENTBUS_TURN_ID"   // of the turn it serves: the parent of its calls
	EnvDepth         = "AGENTBUS_DEPTH"     // of the turn it serves
	EnvMaxDepth      = "AGENTBUS_MAX_DEPTH" // the depth at which the bus refuses
	EnvRootContext   = "AGENTBUS_ROOT_CONTEXT_ID"
	EnvParentContext = "AGENTBUS_PARENT_CONTEXT_ID"
	EnvTraceParent   = "TRACEPARENT"
	EnvProcess       = "AGENTBUS_PROCESS" // names the process and all that it starts, so that the bus finds them
)

// defaultEnv are the variables of the bus that a program sees without being named,
// as it cannot well do without. None of them holds a secret.
var defaultEnv = []string{"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}

// reserved reports whether only the bus sets that variable of a program.
func reserved(name string) bool {
	return strings.HasPrefix(name, "AGENTBUS_") || name == EnvTraceParent
}

// inherited is all that a program sees of the bus's environment: nothing that is
// not named (B2).
func (a *Agent) inherited() (env []string) {
	for _, name := range slices.Concat(defaultEnv, a.config.Env) {
		if v, ok := a.config.Lookup(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// ofTurn is what a program is told of its turn (B2).
func (a *Agent) ofTurn(l agentbus.Lineage, token agentbus.Credential) map[string]string {
	parent, root := l.Contexts(l.Session(), !a.config.NoLegacyParent) // of the calls that it makes (K2)
	env := map[string]string{
		EnvToken: token.Reveal(), //nolint:forbidigo // the program's own, for its turn (B2)
		EnvRunID: string(l.Run), EnvTurnID: string(l.Turn), EnvDepth: strconv.Itoa(l.Depth), EnvMaxDepth: strconv.Itoa(a.config.MaxDepth),
		EnvRootContext: root, EnvParentContext: parent,
		EnvTraceParent: cmp.Or(l.TraceParent, agentbus.NewTrace().String()), // always set: what the program traces belongs together
	}
	if url := a.config.URL(); url != "" {
		env[EnvURL] = url
	}
	if name := a.config.ForwardAuthorizationEnv; name != "" && !l.Auth.IsZero() {
		env[name] = l.Auth.Reveal() //nolint:forbidigo // handed to a program by configuration (P19)
	}
	return env
}
