package execagent

// Fields say where a JSON line holds what.
type Fields struct{}
