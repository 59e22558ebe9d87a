package agentbus

// A Scope is what a call-scoped token stands for (B2): the turn that a program
// serves. Calls made with the token are calls of that turn, on the bill of its
// payer; the token itself never travels on.
type Scope struct {
	Caller  Principal // as whom the program calls; its Grants bound it (G6)
	Payer   Payer     // who is billed
	Lineage Lineage   // of the turn as the program was given it, with the origin's credential
}

// Within returns the lineage of a call that claims to be made inside of the
// scope's turn, with the origin's credential. The run must be the turn's, the
// turn the parent, and the depth beyond the turn's; otherwise it fails with
// CodeInvalidLineage. A call that claims no run at all is the turn's next one
// (P8): a program need not know the protocol to be bounded by it.
func (s Scope) Within(claimed Lineage) (Lineage, error) {
	turn := s.Lineage.Turn
	next, err := s.Lineage.Next(turn, "") // its id is replaced below: the caller's, or minted by the gateway (P7)
	if err != nil {
		return Lineage{}, err
	}
	next.Turn, next.Speaker = claimed.Turn, claimed.Speaker
	next.TraceParent, next.TraceState = claimed.TraceParent, claimed.TraceState
	if claimed.TraceParent == "" {
		next.TraceParent, next.TraceState = s.Lineage.TraceParent, s.Lineage.TraceState
	}
	if claimed.RootContext != "" || claimed.ParentContext != "" { // they correlate and decide nothing (K9)
		next.RootContext, next.ParentContext = claimed.RootContext, claimed.ParentContext
	}
	if claimed.Run == "" {
		next.Depth = max(next.Depth, claimed.Depth)
		return next, nil
	}
	switch {
	case claimed.Run != next.Run:
		return Lineage{}, outOfScope("run", "the token of this call belongs to another run")
	case claimed.Parent != turn:
		return Lineage{}, outOfScope("parent", "the token of this call belongs to another turn than its parent")
	case claimed.Path != "" && claimed.Path != next.Path:
		return Lineage{}, outOfScope("path", "the path of this call is not the one below its parent")
	case claimed.Depth < next.Depth:
		e := outOfScope(claimed.Depth, "this call claims to be no deeper than the turn it is made inside of")
		e.Explain.Limit = next.Depth
		return Lineage{}, e
	}
	next.Depth = claimed.Depth
	return next, nil
}

func outOfScope(observed any, message string) *Error {
	return &Error{
		Code: CodeInvalidLineage, Message: message,
		Explain: &Explain{Rule: "B2", Observed: observed, Next: "send AGENTBUS_RUN_ID, AGENTBUS_TURN_ID as the parent and AGENTBUS_DEPTH plus 1, or no lineage at all"},
	}
}
