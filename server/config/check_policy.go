package config

// callPolicies checks the policies of a conversation and of its participants, and
// fills the conversation's with the defaults.
func (l *loader) callPolicies(c *Conversation, path string) {
	said := c.CallPolicy
	c.CallPolicy = said.Over(DefaultCallPolicy())
	l.callPolicy(said, c.CallPolicy, join(path, "call_policy"))
	for i := range c.Participants {
		p := &c.Participants[i]
		if p.CallPolicy != nil {
			l.callPolicy(*p.CallPolicy, c.PolicyOf(i), join(item(join(path, "participants"), i), "call_policy"))
		}
		if l.c.Agents[p.Agent].Kind != KindConversation || said.Retries != nil || p.CallPolicy != nil && p.CallPolicy.Retries != nil {
			continue
		}
		if p.CallPolicy == nil {
			p.CallPolicy = &CallPolicy{}
		}
		p.CallPolicy.Retries = new(0) // its own turns are retried: retries of retries multiply
	}
}

// callPolicy checks what one policy says, with what it comes to.
func (l *loader) callPolicy(said, is CallPolicy, path string) {
	backoff := join(path, "backoff")
	if (said.Backoff.Base != nil || said.Backoff.Max != nil) && *is.Backoff.Max < *is.Backoff.Base && !l.faulty(join(backoff, "base")) && !l.faulty(join(backoff, "max")) {
		l.fault(join(backoff, "max"), "it is less than base, "+FormatDuration(*is.Backoff.Base), "write as much or more")
	}
	breaker := join(path, "breaker")
	if said.Breaker.Cooldown != nil && *is.Breaker.Failures == 0 && !l.faulty(join(breaker, "failures")) {
		l.fault(join(breaker, "cooldown"), "the breaker never opens: failures is 0", "add failures, such as 5, or remove cooldown")
	}
}
