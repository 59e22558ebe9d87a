package sqlite

import "github.com/agentbus/agentbus"

// An attempt is what the ledger knows of an attempt of a call that is executing,
// or has just come to its end.
type attempt struct {
	entry    agentbus.Entry // what it comes to, as far as it is known
	streamed bool           // there are frames
	held     taken
}

// maxAttempts is how many executing attempts are remembered. One that is not
// is looked up as it ends.
const maxAttempts = 20_000

// begun remembers an attempt that the committer has just reserved.
func (c *conn) begun(key agentbus.Digest, call *agentbus.CallRecord, held taken) {
	if len(c.attempts) >= maxAttempts {
		clear(c.attempts)
	}
	c.attempts[call.ID] = attempt{held: held, entry: agentbus.Entry{
		Call: call.ID, Attempt: call.Attempts, Payer: call.Payer, Key: key, Agent: call.Agent, Run: call.Run, Turn: call.TurnKey.ID,
	}}
}

// running returns what is remembered of an attempt: all there is to know of it,
// since nobody else has written since (see conn.begin).
func (c *conn) running(call int64, number int) (attempt, bool) {
	a, ok := c.attempts[call]
	return a, ok && a.entry.Attempt == number
}

// An ending is a statement that ends the executing attempt ?2 of the call ?1. It
// changes one row, or none when the call is not executing under it.
type ending struct{ known, lookUp string }

// ends returns the ending that sets columns. RETURNING and what stands behind it
// is most of the cost of settling a call, which is what the ledger does most, so
// it is asked of attempts only that the committer does not remember.
func ends(columns string) ending {
	known := "UPDATE calls SET " + columns + " WHERE id = ?1 AND attempts = ?2 AND state = 'executing'"
	return ending{known: known, lookUp: known + `
		RETURNING id, attempts, payer, key, agent, run, turn,
			EXISTS (SELECT 1 FROM frames WHERE frames.id BETWEEN calls.id << 28 AND (calls.id << 28) + 0xfffffff),
			(SELECT amount FROM holds WHERE call_id = calls.id), (SELECT accounts FROM holds WHERE call_id = calls.id)`}
}

// endAttempt ends an attempt with how, and tells what it was. It answers
// errFenced when the call is not executing under it. The arguments behind call
// and number are those of how.
func endAttempt(c *conn, how ending, call int64, number int, args ...any) (attempt, error) {
	args = append([]any{call, int64(number)}, args...)
	if a, known := c.running(call, number); known {
		delete(c.attempts, call)
		changed, err := c.exec(how.known, args...)
		if err == nil && changed == 0 {
			err = errFenced
		}
		return a, err
	}
	r, found, err := c.change(how.lookUp, args...)
	if err == nil && !found {
		err = errFenced
	}
	if err != nil {
		return attempt{}, err
	}
	var a attempt
	a.entry = agentbus.Entry{Call: r.int64(), Attempt: r.int(), Payer: agentbus.Payer(r.text()), Key: r.digest()}
	a.entry.Agent, a.entry.Run, a.entry.Turn = r.text(), agentbus.RunID(r.text()), agentbus.TurnID(r.text())
	a.streamed = r.bool()
	a.held = readTaken(r)
	return a, r.err
}
