package openwop_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/openwop"
)

// E47: whatever is written, a message is there once, in the order of its first
// write, and folding the same events again changes nothing.
func TestReducerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 40).Draw(t, "ids")
		fold, again := openwop.NewFold("run_a", "w"), openwop.NewFold("run_a", "w")
		var want []string
		var log []agentbus.Event
		seen := map[int]bool{}
		for i, id := range ids {
			value := `{"messageId":"m` + strconv.Itoa(id) + `","n":` + strconv.Itoa(i) + `}`
			data, err := json.Marshal(agentbus.ChannelWritten{Channel: "c", Value: json.RawMessage(value), Reducer: agentbus.ReducerMessage, WrittenAt: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			e := agentbus.Event{Position: agentbus.Position(i), Type: agentbus.EventChannelWritten, Data: data}
			log = append(log, e)
			fold.Add(e)
			again.Add(e)
			again.Add(e) // a duplicate
			if !seen[id] {
				seen[id], want = true, append(want, value)
			}
		}
		for _, e := range log { // all of it once more
			again.Add(e)
		}
		for _, f := range []*openwop.Fold{fold, again} {
			got := string(f.State().Channels["c"])
			if text := "[" + strings.Join(want, ",") + "]"; len(want) > 0 && got != text {
				t.Fatalf("got %s, want %s", got, text)
			}
		}
	})
}
