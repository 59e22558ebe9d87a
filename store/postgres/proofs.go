package postgres

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

// maxSweptProofs is how many expired proofs go with each that is used.
const maxSweptProofs = int64(64)

// UseProof notes that a proof was used, durably, until it expires, and reports
// whether it is the first time (C16, C22). Expired ones are forgotten.
func (s *Store) UseProof(ctx context.Context, proof agentbus.Digest, expires time.Time) (first bool, err error) {
	return write(ctx, s, "use a proof", func(c *conn) (bool, error) {
		_, err := c.exec(`DELETE FROM used_proofs WHERE digest IN (SELECT digest FROM used_proofs WHERE expires < $1 ORDER BY expires LIMIT $2)`,
			time.Now().UnixMicro(), maxSweptProofs)
		if err != nil {
			return false, err
		}
		changed, err := c.exec("INSERT INTO used_proofs (digest, expires) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING", proof[:], micros(expires))
		return changed == 1, err
	})
}

// KeepHop stores a signed hop with its call (C16), durably.
func (s *Store) KeepHop(ctx context.Context, h agentbus.HopToken) error {
	_, err := write(ctx, s, "keep a signed hop", func(c *conn) (struct{}, error) {
		_, err := c.exec("INSERT INTO hop_tokens (run, request, sent, token, at) VALUES ($1, $2, $3, $4, $5)",
			string(h.Run), h.RequestID, h.Sent, h.Token, micros(h.At))
		return struct{}{}, err
	})
	return err
}

// HopTokens returns the signed hops of a run, in the order in which they were
// kept.
func (s *Store) HopTokens(ctx context.Context, run agentbus.RunID) ([]agentbus.HopToken, error) {
	return list(ctx, s, "read signed hops", readHop, "SELECT run, request, sent, token, at FROM hop_tokens WHERE run = $1 ORDER BY id", string(run))
}

func readHop(r *row) agentbus.HopToken {
	return agentbus.HopToken{Run: agentbus.RunID(r.text()), RequestID: r.text(), Sent: r.bool(), Token: r.text(), At: r.time()}
}
