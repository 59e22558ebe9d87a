package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// verify checks the signed hops of a run: who called whom, and who paid (C16).
func (v *traceVerb) verify(ctx context.Context, a *app) error {
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	verdict, err := s.VerifyHops(ctx, agentbus.RunID(v.Verified))
	if err != nil {
		return err
	}
	if verdict.Fault == "" {
		return a.answer(verdict, harmless(hopsText(&verdict)))
	}
	if a.JSON {
		if err := printJSON(a.stdout, verdict); err != nil {
			return err
		}
	}
	return &failure{
		exit: exitFailed, what: "the signed hops of run " + harmless(v.Verified) + " are not in order", why: harmless(verdict.Fault),
		next: "do not believe the calls of this run until it is explained: agentbus trace " + operand(agentbus.RunID(v.Verified)) + " shows them",
	}
}

func hopsText(v *identity.HopVerdict) string {
	if len(v.Hops) == 0 {
		return "run " + string(v.Run) + " has no signed hop; trust.signed_hops signs those of later runs\n"
	}
	rows := [][]string{{"HOP", "CALLER", "AGENT", "PAYER"}}
	for _, h := range v.Hops {
		caller := h.Caller[strings.LastIndexByte(h.Caller, '#')+1:]
		rows = append(rows, []string{strconv.Itoa(h.Hop) + " of " + strconv.Itoa(h.MaxHops), dash(caller), h.Agent, string(h.Payer)})
	}
	text := table(rows) + fmt.Sprintf("%s of run %s in order\n", plural(len(v.Hops), "signed hop"), v.Run)
	if v.Unsigned > 0 {
		text += plural(v.Unsigned, "call") + " without a signed hop: made while hops were not signed, or the hop is gone\n"
	}
	return text
}
