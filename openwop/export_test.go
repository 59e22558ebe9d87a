package openwop

// AddLoop offers a workflow of a supervisor and a dispatch with these
// configurations, which none of the fixtures has. Nothing has been asked of h yet.
func (h *Host) AddLoop(name, supervisor, dispatch string) {
	w := loop(name, "supervisor", "supervisor", supervisor, dispatch)
	h.cfg.workflows[w.ID] = w.with(variables("note"))
}

// AddMockAgent offers a workflow of one mock agent that none is pinned to, under an
// id of the conformance profile or, when that cannot be, returns why.
func (h *Host) AddMockAgent(id, config string) error {
	w := fixture("", node("mock", typeMockAgent, config))
	w.ID = id
	h.cfg.workflows[id] = w
	return w.check()
}
