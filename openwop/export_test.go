package openwop

// AddLoop offers a workflow of a supervisor and a dispatch with these
// configurations, which none of the fixtures has. Nothing has been asked of h yet.
func (h *Host) AddLoop(name, supervisor, dispatch string) {
	w := loop(name, "supervisor", "supervisor", supervisor, dispatch)
	h.cfg.workflows[w.ID] = w.with(variables("note"))
}
