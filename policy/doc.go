// Package policy bounds what a call may take: deadlines, retries, breakers and
// budgets, each a Middleware around a Backend. The order in which they are listed
// is the order in which they see a call:
//
//	agentbus.Wrap(backend,
//		policy.Deadline(time.Minute),      // of the turn, with all its attempts
//		policy.Retry{Attempts: 3}.Wrap,    // the same turn again, with the same id
//		breaker.Wrap,                      // shared by all calls of one agent
//		policy.Budget{Funds: f}.Wrap,      // what all calls may cost together
//		policy.Deadline(10*time.Second),   // of each attempt
//	)
//
// A [Policy] composes them so.
package policy
