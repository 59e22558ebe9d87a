package config

// budgets checks each budget, and that no two bound the same calls.
func (l *loader) budgets() {
	type scope struct {
		payer, caller string
		period        Period
	}
	first, strict := map[scope]int{}, false
	for i, b := range l.c.Budgets {
		path := item("budgets", i)
		for key, id := range map[string]string{"payer": string(b.Payer), "caller": b.Caller} {
			if id != "" && !idRE.MatchString(id) {
				l.fault(join(path, key), "this is not an id", "write 1 to 128 visible ASCII characters without comma and double quote")
			}
		}
		if b.USD == nil && b.Calls == 0 && b.WallTime == 0 && !l.faulty(join(path, "usd")) && !l.faulty(join(path, "calls")) && !l.faulty(join(path, "wall_time")) {
			l.fault(path, "the budget bounds nothing", "add usd, calls or, for a run, wall_time")
		}
		if b.WallTime > 0 && b.Period != PeriodRun && b.Period != "" {
			l.fault(join(path, "wall_time"), "a wall time bounds a run, and this is a budget of a "+string(b.Period), "write period: run, or remove it")
		}
		s := scope{string(b.Payer), b.Caller, b.Period}
		if before, twice := first[s]; twice && b.Period != "" {
			l.fault(path, "it bounds the calls that "+item("budgets", before)+" bounds", "make one budget of the two")
			continue
		}
		first[s] = i
		strict = strict || b.USD != nil && b.Mode == BudgetStrict
	}
	if strict {
		l.unpriced()
	}
}

// unpriced warns of agents whose calls a strict budget refuses, because nobody
// knows what one can cost (G27): all of them, or the turns of conversations, which
// bound no output. And of programs without a price, which it takes as free: many
// call a model that is not.
func (l *loader) unpriced() {
	speaks := map[string]bool{}
	for _, c := range l.c.Conversations {
		for _, p := range c.Participants {
			speaks[p.Agent] = true
		}
	}
	for name, a := range l.c.Agents {
		known := a.Price != nil || a.Kind != KindOpenAI && a.Kind != KindA2A
		switch {
		case a.MaxCostUSD != nil:
		case !known || a.UsageCost:
			l.warn(join("agents", name), "what a call of it can cost is not known, so a strict budget refuses it (G27)", "set max_cost_usd on the agent, or its price")
		case a.Kind == KindExec && a.Price == nil:
			l.warn(join("agents", name), "the program has no price, so its calls are free to a strict budget, whatever they cost (G27)", "set its price, or usage_cost and max_cost_usd where it says what it cost; price: {} says that it is free")
		case speaks[name] && a.Price != nil && a.Price.Output > 0:
			l.warn(join("agents", name), "what a turn of it can cost is not known, since conversations send no max_tokens, so a strict budget refuses it (G27)", "set max_cost_usd on the agent")
		}
	}
}
