package gateway_test

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/agentbus/agentbus"
)

// A38, G20, G23, I1: an answer that says that the agent waits keeps the turn's
// key free and costs nothing: the same turn is executed again, and charged once.
// Another final refusal is the answer.
func TestAgentAsks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		code       string
		executions int
	}{
		{http.StatusPaymentRequired, "payment_required", 2},
		{http.StatusUnprocessableEntity, "input_required", 2},
		{http.StatusPaymentRequired, "insufficient_quota", 1},
		{http.StatusUnprocessableEntity, "invalid_request", 1},
		{http.StatusBadRequest, "input_required", 1},
	} {
		t.Run(strconv.Itoa(c.status)+" "+c.code, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			body := `{"error":{"code":"` + c.code + `","message":"not yet"}}`
			a := newAgent(t, "shop", func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) == 1 {
					answerWith(c.status, body)(w, r)
					return
				}
				answerWith(http.StatusOK, completion)(w, r)
			})
			a.Price = price
			b := newBus(t, nil, a)
			if got := b.call("shop", turn("r", "t")...); got.status != c.status || got.body != body {
				t.Errorf("first: %d %s", got.status, got.body)
			}
			var last answer
			for range 2 {
				last = b.call("shop", turn("r", "t")...)
			}
			want := http.StatusOK
			if c.executions == 1 {
				want = c.status
			}
			if last.status != want || a.executions() != c.executions {
				t.Errorf("%d after %d executions", last.status, a.executions())
			}
			recorded, err := b.store.Calls(t.Context(), "r")
			if err != nil || len(recorded) != 1 || recorded[0].State != agentbus.CallSettled || recorded[0].Attempts != c.executions || (recorded[0].Cost > 0) != (c.executions == 2) {
				t.Errorf("%+v, %v", recorded, err)
			}
			if v, err := b.store.VerifyLedger(t.Context()); err != nil || v.Fault != "" {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}
