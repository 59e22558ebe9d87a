package agentbus

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The headers of the protocol (P1). They are written lower-case and read in any
// case.
const (
	HeaderForwardedAuthorization = "x-tangle-forwarded-authorization" // the origin's credential, verbatim
	HeaderForwardedDepth         = "x-tangle-forwarded-depth"         // hops so far; absent is 0
	HeaderRunID                  = "x-tangle-runid"
	HeaderTurnID                 = "x-tangle-turnid"
	HeaderParentTurnID           = "x-tangle-parent-turnid"
	HeaderSpeaker                = "x-tangle-speaker"
	HeaderProtocolVersion        = "x-tangle-protocol-version" // absent is 0, the only version (P25)
	HeaderPath                   = "x-agentbus-path"           // tells nested turns apart (P8)
	HeaderHop                    = "x-agentbus-hop"            // a signed hop (C16)
	HeaderTraceParent            = "traceparent"
	HeaderTraceState             = "tracestate"
)

const (
	// DefaultMaxDepth is the depth at which a call is refused unless the
	// operator says otherwise (P10).
	DefaultMaxDepth = 4
	// maxDepth is the largest depth the grammar can write (P3); depth stays
	// there instead of overflowing (P8).
	maxDepth = 999_999_999
	// maxContextID is the longest conversation context id in bytes (K5).
	maxContextID = 256
	// maxHopToken is the longest signed hop in bytes.
	maxHopToken = 8 << 10
	// maxCredential is the longest forwarded credential in bytes.
	maxCredential = 16 << 10
)

// A Lineage says where a call stands: its run, its turn, the turn it was made
// inside of, how many hops lie behind it and whose credential pays. It comes
// from [ParseLineage] or is made for an origin by hand; it goes on through
// [Lineage.Forward] or [Lineage.Next] only (P8).
type Lineage struct {
	Run     RunID
	Turn    TurnID // "" when the caller named none (P7)
	Parent  TurnID // the enclosing turn; "" at top level
	Speaker Speaker
	Depth   int // hops so far; the origin's call has 0

	// Path tells apart turns whose run, parent and id coincide two levels
	// down: 16 hex digits, or "" at top level (P8, P17).
	Path string

	// RootContext and ParentContext correlate conversations. They decide
	// nothing (K9).
	RootContext, ParentContext string

	// TraceParent and TraceState are the caller's W3C trace context, "" when
	// absent or malformed (P2).
	TraceParent, TraceState string

	// Auth is the origin's credential (P19). It is never ours.
	Auth Credential

	// Hop is the signed hop that came with the call, or goes with it, a compact
	// JWS (C16); "": there is none. Nothing is decided by it before it is verified,
	// and it is for its next receiver only: Forward and Next leave it out.
	Hop string

	// Chain is the chain of agents that the call is part of, as its agent is
	// told; nil: a call of a user. It travels in A2A messages, not in headers
	// (C4).
	Chain *AgentChain
}

// fields of a Lineage on the wire, as indexes into what ParseLineage collects.
const (
	fAuth = iota
	fDepth
	fRun
	fTurn
	fParent
	fSpeaker
	fVersion
	fPath
	fRoot
	fParentContext
	fHop
	fTraceParent
	fTraceState
	fields
)

var headerNames = [fields]string{
	HeaderForwardedAuthorization, HeaderForwardedDepth, HeaderRunID, HeaderTurnID, HeaderParentTurnID,
	HeaderSpeaker, HeaderProtocolVersion, HeaderPath, RootContextIDHeader, ParentContextIDHeader,
	HeaderHop, HeaderTraceParent, HeaderTraceState,
}

// field returns which protocol header name is, in any case, and whether it is
// only one when "_" is read as "-" (P5). It returns fields for any other name.
func field(name string) (f int, twin bool) {
	// Most headers are none of ours, and are told by their length and ends.
	if len(name) < len(HeaderTraceState) || len(name) > len(HeaderForwardedAuthorization) {
		return fields, false
	}
	if c := name[0] | 0x20; c != 'x' && c != 't' {
		return fields, false
	}
	for f, want := range headerNames {
		if len(want) != len(name) {
			continue
		}
		if strings.EqualFold(name, want) {
			return f, false
		}
		if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), want) {
			return f, true
		}
	}
	return fields, false
}

// IsProtocolHeader reports whether name, in any case, is a header of the
// protocol or an underscore twin of one (P5). A gateway drops all of these from
// what it forwards and writes those of the parsed lineage instead (P6).
func IsProtocolHeader(name string) bool {
	f, _ := field(name)
	return f < fields
}

// Twins returns the names in h that a CGI-like server would take for protocol
// headers because it folds "_" into "-" (P5), sorted.
func Twins(h http.Header) []string {
	var names []string
	for name := range h {
		if f, twin := field(name); f < fields && twin {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ParseLineage reads the lineage of an inbound request. Header names are
// matched in any case (P1). What it refuses it refuses with an [*Error] and
// never reads as a default: a header given twice or as a list
// (CodeDuplicateHeader, P2), a malformed depth (CodeInvalidDepth, P3), a
// malformed id, a turn or parent without a run, or a Connection header that
// names a protocol header (CodeInvalidLineage, P4, P6, P7), another protocol
// version (CodeUnsupportedVersion, P25). A malformed trace context is dropped.
//
// Run is "" when the caller sent none; the gateway mints one.
func ParseLineage(h http.Header) (Lineage, error) {
	v, err := collect(h)
	if err != nil {
		return Lineage{}, err
	}
	if err := checkConnection(h); err != nil {
		return Lineage{}, err
	}
	if s := v[fVersion]; s != nil && *s != "0" {
		return Lineage{}, &Error{
			Code: CodeUnsupportedVersion, Message: "this bus speaks version 0 of the protocol",
			Explain: &Explain{Rule: "P25", Observed: clip(*s), Supported: []string{"0"}, Next: "leave " + HeaderProtocolVersion + " out, or send 0"},
		}
	}
	l := Lineage{
		Speaker: Speaker(value(v[fSpeaker])), Auth: NewCredential(value(v[fAuth])),
		TraceParent: value(v[fTraceParent]), TraceState: value(v[fTraceState]),
	}
	if l.Depth, err = ParseDepth(value(v[fDepth])); err != nil {
		return Lineage{}, err
	}
	if err := checkIDs(v); err != nil {
		return Lineage{}, err
	}
	l.Run, l.Turn, l.Parent = RunID(value(v[fRun])), TurnID(value(v[fTurn])), TurnID(value(v[fParent]))
	l.RootContext, l.ParentContext, l.Path = value(v[fRoot]), value(v[fParentContext]), value(v[fPath])
	l.Hop = value(v[fHop])
	if !validTraceParent(l.TraceParent) {
		l.TraceParent, l.TraceState = "", ""
	}
	if len(l.TraceState) > maxID { // a bad tracestate does not cost the traceparent (W3C)
		l.TraceState = ""
	}
	return l, nil
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// collect finds the protocol headers of h, each at most once (P1, P2).
func collect(h http.Header) (v [fields]*string, err error) {
	for name, values := range h {
		f, twin := field(name)
		if f == fields || twin || len(values) == 0 {
			continue
		}
		if f == fTraceParent || f == fTraceState {
			s := "" // two traceparents, or two spellings of one name, are as bad as a malformed one
			if v[f] == nil && (len(values) == 1 || f == fTraceState) {
				s = strings.Join(values, ",") // W3C: several tracestate headers are one list
			}
			v[f] = &s
			continue
		}
		if len(values) > 1 || v[f] != nil || strings.Contains(values[0], ",") {
			return v, &Error{
				Code: CodeDuplicateHeader, Message: headerNames[f] + " must be sent once, with one value",
				Explain: &Explain{Rule: "P2", Next: "send one " + headerNames[f] + " header without a comma"},
			}
		}
		s := strings.Trim(values[0], " \t")
		v[f] = &s
	}
	return v, nil
}

// checkConnection refuses a Connection header that would make a stock proxy
// strip the lineage (P6).
func checkConnection(h http.Header) error {
	for name, values := range h {
		if len(name) != len("connection") || !strings.EqualFold(name, "connection") {
			continue
		}
		for _, list := range values {
			for token := range strings.SplitSeq(list, ",") {
				if f, _ := field(strings.Trim(token, " \t")); f < fields {
					return invalidLineage("P6", "the Connection header names "+headerNames[f], "send Connection without protocol headers")
				}
			}
		}
	}
	return nil
}

// checkIDs refuses malformed ids (P4, P7, K5), paths and lengths.
func checkIDs(v [fields]*string) error {
	for _, f := range [...]int{fRun, fTurn, fParent} {
		if v[f] != nil && !validID(*v[f]) {
			return invalidLineage("P4", headerNames[f]+" is not an id",
				"send 1 to 512 visible ASCII characters without comma and double quote, or leave the header out")
		}
	}
	for _, f := range [...]int{fRoot, fParentContext} {
		if s := value(v[f]); s != "" && !validContext(s) {
			return invalidLineage("K5", headerNames[f]+" is not a context id", "send at most 256 visible ASCII characters, or leave the header out")
		}
	}
	if s := value(v[fPath]); s != "" && !validPath(s) {
		return invalidLineage("P8", HeaderPath+" is not a path", "forward the header as it came: 16 lower-case hex digits")
	}
	if len(value(v[fSpeaker])) > maxID || len(value(v[fAuth])) > maxCredential || len(value(v[fHop])) > maxHopToken {
		return invalidLineage("P4", "a lineage header is too long", "send a speaker of at most 512 bytes and a credential of at most 16 KiB, a signed hop of at most 8 KiB")
	}
	if v[fRun] == nil && (v[fTurn] != nil || v[fParent] != nil) {
		return invalidLineage("P7", "a turn was sent without its run", "send "+HeaderRunID+" too, or no lineage at all")
	}
	return nil
}

func invalidLineage(rule, message, next string) error {
	return &Error{Code: CodeInvalidLineage, Message: message, Explain: &Explain{Rule: rule, Next: next}}
}

func validPath(s string) bool {
	return len(s) == 16 && strings.Trim(s, "0123456789abcdef") == ""
}

// validTraceParent reports whether s is a W3C traceparent that may be passed
// on. Versions above 00 may carry more fields.
func validTraceParent(s string) bool {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" {
		return false
	}
	if len(s) > 55 && (s[:2] == "00" || s[55] != '-' || len(s) > maxID) {
		return false
	}
	const hexDigits = "0123456789abcdef"
	for _, part := range [...]string{s[:2], s[3:35], s[36:52], s[53:55]} {
		if strings.Trim(part, hexDigits) != "" {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// ParseDepth reads a depth (P3): 1 to 9 ASCII digits between spaces and tabs;
// nothing at all is 0. Anything else is CodeInvalidDepth, never 0.
func ParseDepth(s string) (int, error) {
	s = strings.Trim(s, " \t")
	if s == "" {
		return 0, nil
	}
	n := 0
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' || i == 9 {
			return 0, &Error{
				Code: CodeInvalidDepth, Message: HeaderForwardedDepth + " is not a number of hops",
				Explain: &Explain{Rule: "P3", Observed: clip(s), Next: "send 1 to 9 digits, or leave the header out at the origin"},
			}
		}
		n = n*10 + int(c-'0')
	}
	return n, nil
}

// clip is what a caller sent, as it is said back: without what a relay could
// take for a mention, and of what is longer than a number that is too large the
// length alone: it could be a credential that stands in the wrong place (P19).
func clip(s string) string {
	const most = len("18446744073709551616")
	if len(s) > most {
		return strconv.Itoa(len(s)) + " bytes"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "@", "?")
}

// CheckDepth refuses, with CodeDepthExceeded, a call that arrives at or above
// the limit (P10): a limit of 4 serves depths 0 to 3.
func (l Lineage) CheckDepth(limit int) error {
	if l.Depth < limit {
		return nil
	}
	message := "depth " + strconv.Itoa(l.Depth) + " reaches the limit of " + strconv.Itoa(limit) +
		": this call would be hop " + strconv.Itoa(l.Forward().Depth)
	if l.Run != "" && !strings.Contains(string(l.Run), "@") { // no mention in a message
		message += " of run " + string(l.Run)
	}
	return &Error{
		Code: CodeDepthExceeded, Message: message,
		Explain: &Explain{Rule: "P10", Observed: l.Depth, Limit: limit, Next: "answer from what you have, or ask the caller to raise the limit"},
	}
}

// Forward returns the lineage of the same turn at the next hop (P8): depth is
// one higher, all else is unchanged. It is what gateways and routers send.
func (l Lineage) Forward() Lineage {
	l.Depth = min(max(l.Depth, 0), maxDepth-1) + 1
	l.Hop = ""
	return l
}

// Next returns the lineage of a new call made while serving l (P8): a new turn
// of the same run, made inside l's turn, one hop deeper, on the same
// credential. It is what runtimes send. A driver that serves nobody starts from
// Lineage{Run: …, Auth: …}: its calls have depth 1 and no parent. It fails with
// CodeInvalidLineage when l has no run or turn is not an id, and with
// CodeChainFinal when l's chain of agents ends here (C8).
func (l Lineage) Next(turn TurnID, s Speaker) (Lineage, error) {
	if !validID(string(l.Run)) || !validID(string(turn)) {
		return Lineage{}, invalidLineage("P4", "a turn of this run has no valid id",
			"use a run id of visible ASCII characters, short enough that its turn ids stay within 512")
	}
	out := l.Forward()
	if l.Chain != nil {
		next, err := l.Chain.Next()
		if err != nil {
			return Lineage{}, err
		}
		out.Chain = &next
	}
	out.Turn, out.Parent, out.Speaker = turn, l.Turn, s
	if l.Turn != "" {
		out.Path = TurnKey{Path: l.Path, Parent: l.Parent, ID: l.Turn}.PathBelow()
	}
	return out, nil
}

// SetHeaders writes l into h in place of every protocol header and underscore
// twin that h holds (P5, P6). Empty fields are left out, depth is always
// written; the speaker is written as [Speaker.Wire]. The credential goes with
// it: send h nowhere but to a configured agent (P24).
func (l Lineage) SetHeaders(h http.Header) {
	for name := range h {
		if f, _ := field(name); f < fields {
			delete(h, name)
		}
	}
	for _, kv := range [...][2]string{
		{"X-Tangle-Forwarded-Authorization", l.Auth.Reveal()},
		{"X-Tangle-Forwarded-Depth", strconv.Itoa(l.Depth)},
		{"X-Tangle-Runid", string(l.Run)},
		{"X-Tangle-Turnid", string(l.Turn)},
		{"X-Tangle-Parent-Turnid", string(l.Parent)},
		{"X-Agentbus-Path", l.Path},
		{"X-Kagent-Root-Context-Id", l.RootContext},
		{"X-Kagent-Parent-Context-Id", l.ParentContext},
		{"X-Agentbus-Hop", l.Hop},
		{"Traceparent", l.TraceParent},
		{"Tracestate", l.TraceState},
	} {
		if kv[1] != "" {
			h[kv[0]] = []string{kv[1]}
		}
	}
	if l.Speaker != "" {
		h["X-Tangle-Speaker"] = []string{l.Speaker.Wire()}
	}
}
