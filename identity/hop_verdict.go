package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

// A HopLine is one signed hop of a run that is as it must be: who called whom,
// and who pays.
type HopLine struct {
	Caller  string         `json:"caller"`
	Agent   string         `json:"agent"`
	Payer   agentbus.Payer `json:"payer"`
	Hop     int            `json:"hop"`
	MaxHops int            `json:"max_hops"`
	Issuer  string         `json:"issuer"`
	Before  string         `json:"before,omitempty"` // the request id of the call whose hop it names; "": none, or another bus's
}

// A HopVerdict is what a verification of the signed hops of a run found (C16).
type HopVerdict struct {
	Run      agentbus.RunID `json:"run"`
	Hops     []HopLine      `json:"hops"`
	Unsigned int            `json:"unsigned"`        // calls of chains without a signed hop: made while hops were not signed, or their hops are gone
	Fault    string         `json:"fault,omitempty"` // the first that is not what it must be; "": all are
}

// VerifyRun compares the signed hops of a run with its calls: each must be signed
// by this bus or by one that it trusts, be of one call of the run, follow from a hop
// before it that was kept, and say of its call who called, at which hop, and who
// pays; and no call between them may be without one.
func (h *Hops) VerifyRun(ctx context.Context, run agentbus.RunID, kept []agentbus.HopToken, calls []agentbus.CallRecord) HopVerdict {
	v := HopVerdict{Run: run, Hops: []HopLine{}}
	byRequest, known, signed := map[string]*agentbus.CallRecord{}, map[string]*keptHop{}, map[string]int{}
	for i := range calls {
		byRequest[calls[i].RequestID] = &calls[i]
	}
	for i := range kept {
		t := &kept[i]
		hop, _, err := h.read(ctx, t.Token)
		if err != nil {
			v.Fault = fmt.Sprintf("a hop of request %s: %v", t.RequestID, err)
			return v
		}
		before := known[hop.Before]
		known[HopDigest(t.Token)] = &keptHop{hop, t.RequestID}
		if !t.Sent {
			continue
		}
		signed[t.RequestID]++ // its message may have been sent again
		nth := signed[t.RequestID]
		call := byRequest[t.RequestID] // nil: of an attempt that another one followed
		fault := h.belies(&hop, call)
		switch {
		case fault != "":
		case nth > 1 && !strings.HasPrefix(hop.ID, requestPrefix) || strings.HasPrefix(hop.ID, requestPrefix) && hop.ID != agentbus.HopID(t.RequestID, nth): // before, ids were others
			fault = "is not the one hop of its call"
		default:
			fault = strays(&hop, before, run)
		}
		if fault != "" {
			v.Fault = fmt.Sprintf("the hop of request %s %s", t.RequestID, fault)
			return v
		}
		v.Hops = append(v.Hops, lineOf(&hop, before, call))
	}
	v.unsigned(kept, calls, signed)
	return v
}

// requestPrefix is how the ids of requests begin, which signed hops are named after.
const requestPrefix = "req_"

// A keptHop is a hop of a run and the request that it came or went with.
type keptHop struct {
	agentbus.Hop

	request string
}

func lineOf(hop *agentbus.Hop, before *keptHop, call *agentbus.CallRecord) HopLine {
	line := HopLine{Payer: agentbus.Payer(hop.Subject), Hop: hop.Hop, MaxHops: hop.MaxHops, Issuer: hop.Issuer, Agent: hop.Audience}
	line.Caller = hop.Path[len(hop.Path)-1] // there is one, or the hop belies its call
	if before != nil {
		line.Before = before.request
	}
	if call != nil {
		line.Agent = call.Agent
	}
	return line
}

// unsigned counts the calls of chains without a signed hop. One whose record says that
// it was signed has lost it, and so has one that was made between others that have theirs.
func (v *HopVerdict) unsigned(kept []agentbus.HopToken, calls []agentbus.CallRecord, signed map[string]int) {
	for i := range calls {
		c := &calls[i]
		if c.Chain == nil || c.Attempts == 0 || signed[c.RequestID] > 0 {
			continue
		}
		v.Unsigned++
		if slices.Contains(c.Notes, agentbus.NoteHopSigned) {
			v.Fault = fmt.Sprintf("request %s was signed, as its record says, and its hop is gone", c.RequestID)
			return
		}
		if len(kept) > 0 && c.State == agentbus.CallSettled && c.Began.After(kept[0].At) && c.Began.Before(kept[len(kept)-1].At) {
			v.Fault = fmt.Sprintf("request %s was made while hops were signed, and its hop is gone", c.RequestID)
			return
		}
	}
}

// belies says where a hop says something else than its call; "": nowhere.
func (h *Hops) belies(hop *agentbus.Hop, call *agentbus.CallRecord) string {
	switch {
	case hop.Hop < 1 || len(hop.Path) != hop.Hop:
		return "is not as far as its path"
	case hop.Actor != nil && !hop.Actor.Says(hop.Path):
		return "names other actors than its path"
	case call == nil:
	case call.Chain == nil || call.Chain.Hop != hop.Hop:
		return "is of another place in the chain than its call"
	case hop.Path[len(hop.Path)-1] != h.cfg.Signer.issuer+"#"+call.Caller:
		return "names another caller than its call"
	case hop.Before == "" && hop.Subject != string(call.Payer):
		return "names another payer than its call"
	}
	return ""
}

// strays says where a hop does not follow from the one before it, or from its run
// when it is the first; "": nowhere.
func strays(hop *agentbus.Hop, before *keptHop, run agentbus.RunID) string {
	switch {
	case hop.Before == "" && hop.Chain != string(run):
		return "is of another run"
	case hop.Before == "":
		return ""
	case before == nil:
		return "names a hop before it that was not kept"
	case hop.Subject != before.Subject:
		return "names another payer than the hop before it"
	case hop.Chain != before.Chain:
		return "is of another chain than the hop before it"
	case hop.Expires > before.Expires || hop.MaxHops > before.MaxHops || less(hop.Left, before.Left) != hop.Left:
		return "allows more than the hop before it"
	}
	if same := min(len(before.Path), hop.Hop-1); !slices.Equal(hop.Path[:same], before.Path[:same]) {
		return "came another way than the hop before it"
	}
	return ""
}
