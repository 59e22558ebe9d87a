package gateway_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
)

// A headerCase is header lines as they stand on the wire, and what becomes of
// the call.
type headerCase struct {
	lines []string
	code  agentbus.Code // "": served
	note  string        // of the record of a served call
}

const (
	run   = "x-tangle-runid: "
	tid   = "x-tangle-turnid: "
	depth = "x-tangle-forwarded-depth: "
)

func lines(l ...string) []string { return l }

// depths are P3: a depth is 1 to 9 ASCII digits between spaces and tabs, or
// nothing.
var depths = map[string]headerCase{
	"depth 0":               {lines(depth + "0"), "", ""},
	"depth empty":           {lines(depth), "", ""},
	"depth blank":           {lines(depth + " \t "), "", ""},
	"depth between blanks":  {lines(depth + " \t3\t "), "", ""},
	"depth 000000003":       {lines(depth + "000000003"), "", ""},
	"depth 4":               {lines(depth + "4"), agentbus.CodeDepthExceeded, ""},
	"depth 999999999":       {lines(depth + "999999999"), agentbus.CodeDepthExceeded, ""},
	"depth of 10 digits":    {lines(depth + "0000000003"), agentbus.CodeInvalidDepth, ""},
	"depth 2^64":            {lines(depth + "18446744073709551616"), agentbus.CodeInvalidDepth, ""},
	"depth 2^32":            {lines(depth + "4294967296"), agentbus.CodeInvalidDepth, ""},
	"depth -1":              {lines(depth + "-1"), agentbus.CodeInvalidDepth, ""},
	"depth +5":              {lines(depth + "+5"), agentbus.CodeInvalidDepth, ""},
	"depth 1e3":             {lines(depth + "1e3"), agentbus.CodeInvalidDepth, ""},
	"depth 0x1":             {lines(depth + "0x1"), agentbus.CodeInvalidDepth, ""},
	"depth 1.0":             {lines(depth + "1.0"), agentbus.CodeInvalidDepth, ""},
	"depth 1_0":             {lines(depth + "1_0"), agentbus.CodeInvalidDepth, ""},
	"depth 1 1":             {lines(depth + "1 1"), agentbus.CodeInvalidDepth, ""},
	"depth NaN":             {lines(depth + "NaN"), agentbus.CodeInvalidDepth, ""},
	"depth four":            {lines(depth + "four"), agentbus.CodeInvalidDepth, ""},
	"depth Arabic":          {lines(depth + "٣"), agentbus.CodeInvalidDepth, ""},
	"depth full width":      {lines(depth + "３"), agentbus.CodeInvalidDepth, ""},
	"depth quoted":          {lines(depth + `"1"`), agentbus.CodeInvalidDepth, ""},
	"depth no-break space":  {lines(depth + "1\u00a0"), agentbus.CodeInvalidDepth, ""},
	"depth semicolon":       {lines(depth + "1;2"), agentbus.CodeInvalidDepth, ""},
	"depth of 8 KiB":        {lines(depth + strings.Repeat("1", 8<<10)), agentbus.CodeInvalidDepth, ""},
	"depth a relay mention": {lines(depth + "@everyone"), agentbus.CodeInvalidDepth, ""},
}

// twice are P2 and P1: one value, whatever the case of its name.
var twice = map[string]headerCase{
	"depth list":             {lines(depth + "2, 99"), agentbus.CodeDuplicateHeader, ""},
	"depth list, bad":        {lines(depth + "x,y"), agentbus.CodeDuplicateHeader, ""},
	"depth comma":            {lines(depth + ","), agentbus.CodeDuplicateHeader, ""},
	"depth twice":            {lines(depth+"1", depth+"1"), agentbus.CodeDuplicateHeader, ""},
	"depth twice, empty":     {lines(depth, depth+"9"), agentbus.CodeDuplicateHeader, ""},
	"depth in two cases":     {lines(depth+"0", "X-TANGLE-FORWARDED-DEPTH: 9"), agentbus.CodeDuplicateHeader, ""},
	"depth in mixed case":    {lines("X-tAnGlE-fOrWaRdEd-DePtH: 4"), agentbus.CodeDepthExceeded, ""},
	"run twice":              {lines(run+"a", run+"a"), agentbus.CodeDuplicateHeader, ""},
	"run in two cases":       {lines(run+"a", "X-Tangle-RunId: b"), agentbus.CodeDuplicateHeader, ""},
	"run list":               {lines(run + "a,b"), agentbus.CodeDuplicateHeader, ""},
	"turn twice":             {lines(run+"a", tid+"t", tid+"t"), agentbus.CodeDuplicateHeader, ""},
	"turn list":              {lines(run+"a", tid+"t,u"), agentbus.CodeDuplicateHeader, ""},
	"parent twice":           {lines(run+"a", "x-tangle-parent-turnid: t", "x-tangle-parent-turnid: u"), agentbus.CodeDuplicateHeader, ""},
	"speaker list":           {lines("x-tangle-speaker: a, b"), agentbus.CodeDuplicateHeader, ""},
	"path twice":             {lines("x-agentbus-path: 0123456789abcdef", "x-agentbus-path: 0123456789abcdef"), agentbus.CodeDuplicateHeader, ""},
	"forwarded twice":        {lines(forAlice, forAlice), agentbus.CodeDuplicateHeader, ""},
	"forwarded list":         {lines(forAlice + ", Bearer x"), agentbus.CodeDuplicateHeader, ""},
	"version twice":          {lines("x-tangle-protocol-version: 0", "x-tangle-protocol-version: 0"), agentbus.CodeDuplicateHeader, ""},
	"authorization twice":    {lines(asBob), agentbus.CodeDuplicateHeader, ""},
	"idempotency key twice":  {lines("Idempotency-Key: a", "idempotency-key: a"), agentbus.CodeInvalidRequest, ""},
	"trace twice is dropped": {lines("traceparent: x", "traceparent: y", "tracestate: z"), "", ""},
	"trace malformed":        {lines("traceparent: 00-zz-zz-00"), "", ""},
}

// ids are P4, P7, P8, K5 and P25.
var ids = map[string]headerCase{
	"run":                     {lines(run + "conv_abc"), "", ""},
	"run of 490":              {lines(run+strings.Repeat("r", 490), tid+strings.Repeat("t", 512)), "", ""},
	"run of 513":              {lines(run + strings.Repeat("r", 513)), agentbus.CodeInvalidLineage, ""},
	"run of 8 KiB":            {lines(run + strings.Repeat("r", 8<<10)), agentbus.CodeInvalidLineage, ""},
	"run empty":               {lines(run), agentbus.CodeInvalidLineage, ""},
	"run blank":               {lines(run + " \t"), agentbus.CodeInvalidLineage, ""},
	"run with a space":        {lines(run + "a b"), agentbus.CodeInvalidLineage, ""},
	"run with a tab":          {lines(run + "a\tb"), agentbus.CodeInvalidLineage, ""},
	"run with a quote":        {lines(run + `a"b`), agentbus.CodeInvalidLineage, ""},
	"run beyond ASCII":        {lines(run + "café"), agentbus.CodeInvalidLineage, ""},
	"run right to left":       {lines(run + "a\u202eb"), agentbus.CodeInvalidLineage, ""},
	"run of broken UTF-8":     {lines(run + "a\xffb"), agentbus.CodeInvalidLineage, ""},
	"turn of 513":             {lines(run+"r", tid+strings.Repeat("t", 513)), agentbus.CodeInvalidLineage, ""},
	"turn empty":              {lines(run+"r", tid), agentbus.CodeInvalidLineage, ""},
	"turn with a space":       {lines(run+"r", tid+"t u"), agentbus.CodeInvalidLineage, ""},
	"turn without a run":      {lines(tid + "r.t0.x"), agentbus.CodeInvalidLineage, ""},
	"parent without a run":    {lines("x-tangle-parent-turnid: r.t0.x"), agentbus.CodeInvalidLineage, ""},
	"parent empty":            {lines(run+"r", "x-tangle-parent-turnid: "), agentbus.CodeInvalidLineage, ""},
	"parent with a quote":     {lines(run+"r", `x-tangle-parent-turnid: "`), agentbus.CodeInvalidLineage, ""},
	"speaker of 513":          {lines("x-tangle-speaker: " + strings.Repeat("s", 513)), agentbus.CodeInvalidLineage, ""},
	"speaker in words":        {lines("x-tangle-speaker: The Critic"), "", ""},
	"path short":              {lines("x-agentbus-path: 0123"), agentbus.CodeInvalidLineage, ""},
	"path upper case":         {lines("x-agentbus-path: 0123456789ABCDEF"), agentbus.CodeInvalidLineage, ""},
	"context of 257":          {lines("x-kagent-root-context-id: " + strings.Repeat("c", 257)), agentbus.CodeInvalidLineage, ""},
	"context with a space":    {lines("x-kagent-parent-context-id: a b"), agentbus.CodeInvalidLineage, ""},
	"version 0":               {lines("x-tangle-protocol-version: 0"), "", ""},
	"version 1":               {lines("x-tangle-protocol-version: 1"), agentbus.CodeUnsupportedVersion, ""},
	"version v0":              {lines("x-tangle-protocol-version: v0"), agentbus.CodeUnsupportedVersion, ""},
	"version empty":           {lines("x-tangle-protocol-version: "), agentbus.CodeUnsupportedVersion, ""},
	"idempotency key empty":   {lines("Idempotency-Key: "), agentbus.CodeInvalidRequest, ""},
	"idempotency key of 513":  {lines("Idempotency-Key: " + strings.Repeat("k", 513)), agentbus.CodeInvalidRequest, ""},
	"forwarded over 16 KiB":   {lines("x-tangle-forwarded-authorization: Bearer " + strings.Repeat("k", 17<<10)), agentbus.CodeInvalidLineage, ""},
	"forwarded empty is none": {lines("x-tangle-forwarded-authorization: "), "", ""},
}

// games are P5, P6 and G12: what would make another server lose or change the
// lineage, or read the request otherwise.
var games = map[string]headerCase{
	"twin depth":                  {lines("x_tangle_forwarded_depth: 0"), "", "stripped:x_tangle_forwarded_depth"},
	"twin depth, one underscore":  {lines("x-tangle-forwarded_depth: 9"), "", "stripped:x-tangle-forwarded_depth"},
	"twin run beside the run":     {lines(run+"r1", "X_TANGLE_RUNID: r2"), "", "stripped:x_tangle_runid"},
	"twin credential":             {lines("x_tangle_forwarded_authorization: Bearer x"), "", "stripped:x_tangle_forwarded_authorization"},
	"two twins":                   {lines("x_tangle_turnid: t", "x_agentbus_path: p"), "", "stripped:x_agentbus_path+x_tangle_turnid"},
	"twin malformed is no depth":  {lines("x_tangle-forwarded-depth: 1e3"), "", "stripped:x_tangle-forwarded-depth"},
	"twin of the length":          {lines("Content_Length: 0", "Transfer_Encoding: chunked"), "", "stripped:content_length+transfer_encoding"},
	"twin of who calls":           {lines("X_Forwarded_For: 10.0.0.1", "x-forwarded_proto: https"), "", "stripped:x-forwarded_proto+x_forwarded_for"},
	"twin of a credential":        {lines("Idempotency_Key: k", "proxy_authorization: Basic x"), "", "stripped:idempotency_key+proxy_authorization"},
	"a long name":                 {lines("_" + strings.Repeat("n", 9000) + ": 1"), "", "stripped:_" + strings.Repeat("n", 63)},
	"more than are read":          {lines("_a: 1", "_b: 1", "_c: 1", "_d: 1", "_e: 1", "_f: 1", "_g: 1", "_h: 1", "_i: 1"), "", "stripped:_a+_b+_c+_d+_e+_f+_g+_h"},
	"connection names depth":      {lines("Connection: x-tangle-forwarded-depth", depth+"3"), agentbus.CodeInvalidLineage, ""},
	"connection names it absent":  {lines("Connection: X-Tangle-Forwarded-Depth"), agentbus.CodeInvalidLineage, ""},
	"connection names it in list": {lines("Connection: keep-alive, \tX-TANGLE-RUNID ,close"), agentbus.CodeInvalidLineage, ""},
	"second connection names it":  {lines("Connection: close", "connection: x-tangle-turnid"), agentbus.CodeInvalidLineage, ""},
	"connection names a twin":     {lines("Connection: x_tangle_forwarded_depth"), agentbus.CodeInvalidLineage, ""},
	"connection names traces":     {lines("Connection: traceparent"), agentbus.CodeInvalidLineage, ""},
	"connection names another":    {lines("Connection: x-mine", "x-mine: 1"), "", ""},
	"trailer names depth":         {lines("Trailer: x-tangle-forwarded-depth"), "", ""},
}

// TestHeaders: P1 to P8 and P25 on a raw socket, where no client repairs what it
// sends. Nothing malformed reaches an agent.
func TestHeaders(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	served := 0
	for _, table := range []map[string]headerCase{depths, twice, ids, games} {
		for name, c := range table {
			got := b.raw(rawPost(chatRoute, ask("critic"), c.lines...))
			if c.code != "" {
				refused(t, name, got, c.code.Status(), c.code)
				if strings.Contains(got.body, "@") || strings.Contains(got.body, canary) {
					t.Errorf("%s: the refusal says %s", name, got.body)
				}
				continue
			}
			served++
			if got.status != http.StatusOK || got.body != completion {
				t.Errorf("%s: %v", name, got)
				continue
			}
			calls := b.calls(got.header.Get("x-tangle-runid"))
			if n := len(calls); n == 0 || c.note != "" && !slices.Contains(calls[n-1].Notes, c.note) {
				t.Errorf("%s: recorded as %+v, want the note %q", name, calls, c.note)
			}
		}
	}
	if cases := len(depths) + len(twice) + len(ids) + len(games); cases < 90 {
		t.Errorf("%d cases", cases)
	}
	if n := a.executions(); n != served {
		t.Errorf("the agent was called %d times, want %d", n, served)
	}
	close(a.heard)
	for h := range a.heard {
		for name := range h.header {
			if strings.Contains(name, "_") || name == "Connection" || name == "Trailer" || name == "X-Mine" {
				t.Errorf("the agent heard %s: %q", name, h.header[name])
			}
		}
	}
}

// P2: two credentials that a proxy has joined are refused like two headers.
func TestAuthorizationList(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	for authorization, code := range map[string]agentbus.Code{
		"Bearer " + aliceKey + ", Bearer " + bobKey: agentbus.CodeDuplicateHeader,
		"bearer x,y":                     agentbus.CodeDuplicateHeader,
		`Digest username="a", realm="b"`: agentbus.CodeUnauthenticated,
	} {
		refused(t, authorization, b.send(http.MethodPost, chatRoute, ask("critic"), "Authorization: "+authorization), code.Status(), code)
	}
	if n := a.executions(); n != 0 {
		t.Errorf("the agent was called %d times", n)
	}
}

// TestHeadersRepaired: what net/http refuses by itself is refused, too.
func TestHeadersRepaired(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	for name, line := range map[string]string{
		"NUL":                    run + "a\x00b",
		"escape":                 run + "a\x1bb",
		"delete":                 run + "a\x7fb",
		"bare CR":                run + "a\rb",
		"space before the colon": "x-tangle-forwarded-depth : 0",
		"no name":                ": 0",
		"name with a NUL":        "x-tangle\x00-runid: 0",
	} {
		if got := b.raw(rawPost(chatRoute, ask("critic"), line)); got.status != http.StatusBadRequest {
			t.Errorf("%s: %v", name, got)
		}
	}
	if n := a.executions(); n != 0 {
		t.Errorf("the agent was called %d times", n)
	}
}

// TestTrailersAreNoHeaders: a lineage in the trailer of a chunked body is none.
func TestTrailersAreNoHeaders(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	body := ask("critic")
	got := b.raw("POST " + chatRoute + " HTTP/1.1\r\nHost: bus\r\n" + asAlice + "\r\n" + depth + "2\r\nTrailer: x-tangle-forwarded-depth\r\nTransfer-Encoding: chunked\r\n\r\n" +
		strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n0\r\n" + depth + "0\r\n" + run + "smuggled\r\n\r\n")
	if got.status != http.StatusOK {
		t.Fatal(got)
	}
	if h := a.next(t); h.header.Get("x-tangle-forwarded-depth") != "3" || h.header.Get("x-tangle-runid") == "smuggled" || h.body != body {
		t.Errorf("the agent heard %+v", h)
	}
}

// TestMintedIDs: P7, what the caller did not name is minted and returned; minted
// ids never deduplicate.
func TestMintedIDs(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "Naïve Critic", nil)
	b := newBus(t, nil, a)
	seen := map[string]bool{}
	for range 3 {
		got := b.call(a.Name)
		r, id := got.header.Get("x-tangle-runid"), got.header.Get("x-tangle-turnid")
		if !strings.HasPrefix(r, "run_") || len(r) != len("run_")+36 || r[4+14] != '7' || id != r+".t0.nai-ve-critic" || seen[r] {
			t.Errorf("minted run %q, turn %q", r, id)
		}
		seen[r] = true
		if h := a.next(t); h.header.Get("x-tangle-runid") != r || h.header.Get("x-tangle-turnid") != id || h.header.Get("x-tangle-forwarded-depth") != "1" {
			t.Errorf("the agent heard %v, the caller read %s %s", h.header, r, id)
		}
	}
	// Depth stays as claimed, and P10 applies.
	got := b.call(a.Name, depth+"7")
	refused(t, "deep", got, http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
	if r := got.header.Get("x-tangle-runid"); r == "" || gjson.Get(got.body, "error.run_id").Str != r {
		t.Errorf("the refusal names no run: %v", got)
	}
	// A run without a turn: the next free index under (payer, run, parent).
	for i, want := range []string{"r.t0.nai-ve-critic", "r.t1.nai-ve-critic", "r.t2.nai-ve-critic"} {
		if got := b.call(a.Name, run+"r").header.Get("x-tangle-turnid"); got != want {
			t.Errorf("turn %d is %s, want %s", i, got, want)
		}
	}
	if got := b.call(a.Name, run+"r", "x-tangle-parent-turnid: r.t0.x").header.Get("x-tangle-turnid"); got != "r.t0.nai-ve-critic" {
		t.Errorf("the first turn inside another is %s", got)
	}
	if got := b.send(http.MethodPost, chatRoute, ask(a.Name), asBob, run+"r").header.Get("x-tangle-turnid"); got != "r.t0.nai-ve-critic" {
		t.Errorf("the first turn of another payer is %s", got)
	}
	if got := b.call(a.Name, append(turn("r", "r.t9.x"), run+"r")[:2]...); got.status != http.StatusOK {
		t.Errorf("a turn of the caller's own: %v", got)
	}
	if got := b.call(a.Name, run+"r").header.Get("x-tangle-turnid"); got != "r.t10.nai-ve-critic" {
		t.Errorf("the turn behind t9 is %s", got)
	}
	// P4: an id of the bus has 512 characters at the most, also where that of the run leaves no room.
	long := b.call(a.Name, run+strings.Repeat("r", 512))
	if id := long.header.Get("x-tangle-turnid"); long.status != http.StatusOK || !agentbus.RunID(id).Valid() || long.header.Get("x-tangle-runid") != strings.Repeat("r", 512) {
		t.Errorf("the turn of a run with a long id is %q: %v", id, long)
	}
}

// TestMintedAtOnce: P7, minted turns are different ones, also when they are
// minted at once.
func TestMintedAtOnce(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	const n = 24
	minted := make(chan string, n)
	for range n {
		go func() { minted <- b.call("critic", run+"r").header.Get("x-tangle-turnid") }()
	}
	seen := map[string]bool{}
	for range n {
		seen[<-minted] = true
	}
	for i := range n {
		if id := "r.t" + strconv.Itoa(i) + ".critic"; !seen[id] {
			t.Errorf("no turn %s among %v", id, seen)
		}
	}
	if got := a.executions(); got != n {
		t.Errorf("%d executions, want %d", got, n)
	}
}

// TestIdempotencyKey: P7 and G20, the key stands in for a missing turn id; a
// replay returns the ids first minted.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a, newAgent(t, "writer", nil))
	for name, headers := range map[string][]string{
		"without a run": {"Idempotency-Key: k"},
		"in a run":      {"Idempotency-Key: k", run + "r"},
		"inside a turn": {"Idempotency-Key: k", run + "r", "x-tangle-parent-turnid: p"},
	} {
		before := a.executions()
		first, second := b.call("critic", headers...), b.call("critic", headers...)
		if a.executions() != before+1 || second.header.Get("X-Agentbus-Replay") != "hit" || second.body != first.body {
			t.Errorf("%s: %d executions, replay %v", name, a.executions()-before, second)
		}
		for _, h := range []string{"x-tangle-runid", "x-tangle-turnid", "x-request-id"} {
			if first.header.Get(h) == "" || first.header.Get(h) != second.header.Get(h) {
				t.Errorf("%s: %s was %q, is %q", name, h, first.header.Get(h), second.header.Get(h))
			}
		}
		if h := a.next(t); h.header.Get("Idempotency-Key") != "" || h.header.Get("x-tangle-runid") != first.header.Get("x-tangle-runid") { // G11
			t.Errorf("%s: the agent heard %v", name, h.header)
		}
	}
	before := a.executions()
	b.send(http.MethodPost, chatRoute, ask("critic"), asBob, "Idempotency-Key: k") // never without the payer
	b.call("critic", "Idempotency-Key: other")
	if n := a.executions() - before; n != 2 {
		t.Errorf("another payer and another key: %d executions, want 2", n)
	}
	if got := b.call("writer", "Idempotency-Key: k"); got.header.Get("X-Agentbus-Replay") != "" {
		t.Errorf("another agent: %v", got)
	}
	refused(t, "another body", b.stream("critic", "Idempotency-Key: k"), http.StatusUnprocessableEntity, agentbus.CodeTurnMismatch)
	// A turn id decides; the key beside it is not looked at.
	b.call("critic", append(turn("r2", "r2.t0.critic"), "Idempotency-Key: x")...)
	if got := b.call("critic", append(turn("r2", "r2.t0.critic"), "Idempotency-Key: y")...); got.header.Get("X-Agentbus-Replay") != "hit" {
		t.Errorf("the same turn under another key: %v", got)
	}
}
