package gateway_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// TestDepth: P10, a limit of n serves depths 0 to n-1 and refuses n: as many
// charges as served calls, one refusal of amount 0, repeats counted (P12), and
// nobody is called for a refusal.
func TestDepth(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 1, 2, 4, 9} { // 0: the default, 4
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			t.Parallel()
			a := newAgent(t, "critic", nil)
			a.Price = price
			b := newBus(t, func(c *gateway.Config) { c.MaxDepth = limit }, a)
			served := limit
			if limit == 0 {
				served = agentbus.DefaultMaxDepth
			}
			for d := range served {
				if got := b.call("critic", append(turn("r", "r.t"+strconv.Itoa(d)+".critic"), depth+strconv.Itoa(d))...); got.status != http.StatusOK {
					t.Errorf("depth %d: %v", d, got)
					continue
				}
				if h := a.next(t); h.header.Get("x-tangle-forwarded-depth") != strconv.Itoa(d+1) {
					t.Errorf("depth %d went on as %s", d, h.header.Get("x-tangle-forwarded-depth"))
				}
			}
			for range 3 {
				refused(t, "at the limit", b.call("critic", append(turn("r", "r.t9.critic"), depth+strconv.Itoa(served))...), http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
			}
			calls := b.calls("r")
			if len(calls) != served+1 || a.executions() != served {
				t.Fatalf("%d records and %d executions, want %d served calls and one refusal: %+v", len(calls), a.executions(), served, calls)
			}
			for i, c := range calls[:served] {
				if c.State != agentbus.CallSettled || c.Cost != priced || c.Depth != i {
					t.Errorf("served call recorded as %+v", c)
				}
			}
			if c := calls[served]; c.State != agentbus.CallRefused || c.Cost != 0 || c.Code != agentbus.CodeDepthExceeded || c.Repeats != 2 || c.Depth != served || c.Payer != "alice" || c.Agent != "critic" {
				t.Errorf("refusal recorded as %+v", c)
			}
		})
	}
}

// TestDepthRefusal: section 3, the body of a refusal, to the byte; P12, a call
// below the limit is never answered from it.
func TestDepthRefusal(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	b := newBus(t, nil, a)
	headers := turn("conv_abc", "conv_abc.t0.critic")
	got := b.call("critic", append(headers, depth+"4")...)
	refused(t, "depth 4", got, http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
	const want = `{"error":{"message":"depth 4 reaches the limit of 4: this call would be hop 5 of run conv_abc","type":"invalid_request_error",` +
		`"param":null,"code":"bridge_depth_exceeded","run_id":"conv_abc","turn_id":"conv_abc.t0.critic","retryable":false,` +
		`"explain":{"rule":"P10","observed":4,"limit":4,"next":"answer from what you have, or ask the caller to raise the limit"}}}`
	if diff := cmp.Diff(want, got.body); diff != "" {
		t.Errorf("the refusal (-want +got):\n%s", diff)
	}
	if got.header.Get("Content-Type") != "application/json" || got.header.Get("x-tangle-runid") != "conv_abc" || got.header.Get("x-request-id") == "" {
		t.Errorf("its headers: %v", got.header)
	}
	if got := b.call("critic", append(headers, depth+"3")...); got.status != http.StatusOK {
		t.Errorf("below the limit: %v", got)
	}
	// A stream is refused in the same form: nothing has begun.
	refused(t, "stream", b.stream("critic", append(headers, depth+"5")...), http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
	// And so is any other method.
	refused(t, "GET", b.send(http.MethodGet, "/agents/critic/x", "", append(headers, depth+"4", asAlice)...), http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
	if n := a.executions(); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
	// P12: a duplicate of the served turn that comes at the limit is refused, not answered.
	refused(t, "duplicate at the limit", b.call("critic", append(headers, depth+"4")...), http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
}
