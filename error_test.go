package agentbus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

// P11, P12: the table of codes, as section 3 of the protocol writes it.
var codeTable = map[agentbus.Code]struct {
	status int
	retry  bool
}{
	"invalid_request": {400, false}, "invalid_depth": {400, false}, "invalid_lineage": {400, false}, "duplicate_header": {400, false},
	"unauthenticated":  {401, false},
	"payment_required": {402, false}, "budget_exceeded": {402, false},
	"input_required": {422, false},
	"forbidden":      {403, false}, "untrusted_forwarder": {403, false}, "run_stopped": {403, false},
	"agent_not_found": {404, false}, "run_not_found": {404, false}, "not_found": {404, false},
	"reply_expired":         {410, false},
	"request_too_large":     {413, false},
	"unsupported_version":   {400, false},
	"unsupported_content":   {415, false},
	"turn_mismatch":         {422, false},
	"bridge_depth_exceeded": {429, false}, "cycle_refused": {429, false}, "chain_final": {429, false},
	"rate_limited": {429, true}, "overloaded": {503, true},
	"lease_lost": {409, false}, "run_conflict": {409, false}, "outcome_unknown": {409, false},
	"store_unavailable": {503, true}, "identity_unavailable": {503, true}, "draining": {503, true},
	"agent_unavailable": {502, true}, "circuit_open": {503, true},
	"agent_redirected":  {502, false},
	"deadline_exceeded": {504, true},
	"internal":          {500, false},
}

// TestErrorPage: docs/errors.md has every code of the table, its status, whether
// to send again, its cause and its cure, and no other code.
func TestErrorPage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(raw), "\n### ")[1:]
	told := make(map[agentbus.Code]bool)
	for _, section := range sections {
		name, rest, _ := strings.Cut(section, "\n")
		code := agentbus.Code(name)
		again := "do not send again"
		if code.Retryable() {
			again = "send again"
		}
		if !code.Known() || told[code] || !strings.HasPrefix(rest, fmt.Sprintf("%d · %s · exit ", code.Status(), again)) {
			t.Errorf("%s: the page says %q", name, rest[:min(len(rest), 60)])
		}
		_, cause, hasCause := strings.Cut(rest, "\n**Cause.** ")
		_, cure, hasCure := strings.Cut(cause, "\n**Cure.** ")
		if !hasCause || !hasCure || len(cure) < 20 {
			t.Errorf("%s has no cause or no cure", name)
		}
		told[code] = true
	}
	for code := range codeTable {
		if !told[code] {
			t.Errorf("the page lacks %s", code)
		}
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	for code, want := range codeTable {
		if !code.Known() || code.Status() != want.status || code.Retryable() != want.retry {
			t.Errorf("%s: known %t, status %d, retryable %t, want %+v", code, code.Known(), code.Status(), code.Retryable(), want)
		}
	}
	for _, code := range []agentbus.Code{"", "made_up", "Bridge_Depth_Exceeded"} {
		if code.Known() || code.Status() != 500 || code.Retryable() {
			t.Errorf("%q: known %t, status %d, retryable %t, want an unknown 500", code, code.Known(), code.Status(), code.Retryable())
		}
	}
}

// Every code that the package declares is a row of the table, and the other way round.
func TestCodesAreAllInTheTable(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "error.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Code" {
			lit, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s is not a literal", spec.Names[0])
			}
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, value)
		}
		return false
	})
	var want []string
	for code := range codeTable {
		want = append(want, string(code))
	}
	slices.Sort(want)
	slices.Sort(declared)
	if diff := cmp.Diff(want, declared); diff != "" {
		t.Errorf("declared codes (-want +got):\n%s", diff)
	}
}

func TestErrorChain(t *testing.T) {
	t.Parallel()
	cause := io.ErrUnexpectedEOF
	ours := &agentbus.Error{Code: agentbus.CodeLeaseLost, Message: "epoch 2 has moved on", Err: cause}
	wrapped := fmt.Errorf("finish turn r.t0.a: %w", ours)

	if got, want := wrapped.Error(), "finish turn r.t0.a: lease_lost: epoch 2 has moved on: unexpected EOF"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if got, want := (&agentbus.Error{Code: agentbus.CodeDraining, Message: "m"}).Error(), "draining: m"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if !errors.Is(wrapped, &agentbus.Error{Code: agentbus.CodeLeaseLost}) {
		t.Error("it is not told by its code")
	}
	if errors.Is(wrapped, &agentbus.Error{Code: agentbus.CodeRunConflict}) {
		t.Error("it is told by another code")
	}
	if !errors.Is(wrapped, cause) {
		t.Error("its cause is not found")
	}
	if got := agentbus.AsError(wrapped); got != ours {
		t.Errorf("AsError = %+v", got)
	}
	if got := agentbus.CodeOf(errors.Join(errors.New("other"), wrapped)); got != agentbus.CodeLeaseLost {
		t.Errorf("CodeOf = %q", got)
	}
}

// An error of somebody else's is internal, and its words stay in the log.
func TestAsErrorOfAnotherError(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errors.New("dial 10.0.0.7: secret-host"), context.Canceled, fmt.Errorf("x: %w", io.EOF)} {
		got := agentbus.AsError(err)
		if got.Code != agentbus.CodeInternal || !errors.Is(got, err) {
			t.Errorf("AsError(%v) = %+v", err, got)
		}
		sent, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"code":"internal","message":"the bus failed; its operator finds the cause in the log under this request id"}`
		if string(sent) != want {
			t.Errorf("sent %s, want %s", sent, want)
		}
	}
	if agentbus.AsError(nil) != nil || agentbus.CodeOf(nil) != "" {
		t.Error("no error is an error")
	}
}

// P19: the cause never crosses the wire.
func TestErrorJSON(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(&agentbus.Error{
		Code: agentbus.CodeDepthExceeded, Message: "m", RetryAfter: time.Second, Status: 502, Err: errors.New(canary),
		Explain: &agentbus.Explain{Rule: "P10", Observed: 4, Limit: 4, Supported: []string{"0"}, Next: "n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"code":"bridge_depth_exceeded","message":"m","explain":{"rule":"P10","observed":4,"limit":4,"supported":["0"],"next":"n"},` +
		`"retry_after":1000000000,"status":502}`
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var back agentbus.Error
	if err := json.Unmarshal([]byte(`{"code":"x","Err":{"a":1}}`), &back); err != nil || back.Err != nil {
		t.Errorf("a cause was read from the wire: %+v, %v", back, err)
	}
}
