package sqlite

import (
	"context"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// executingFollowed holds for rows w whose call is executing under their attempt.
const executingFollowed = "EXISTS (SELECT 1 FROM calls c WHERE c.id = w.call_id AND c.attempts = w.attempt AND c.state = 'executing')"

// FollowStream asks the process that executes an attempt of a call to tell its
// stream to others from now on (G22). What is left of calls that ended is
// removed.
func (s *Store) FollowStream(ctx context.Context, call int64, attempt int, owner string) error {
	_, err := write(ctx, s, "follow a stream", func(c *conn) (struct{}, error) {
		for _, table := range []string{"followed_streams", "stream_pieces"} {
			if _, err := c.exec("DELETE FROM " + table + " AS w WHERE NOT " + executingFollowed); err != nil {
				return struct{}{}, err
			}
		}
		_, err := c.exec("INSERT INTO followed_streams (call_id, attempt, owner) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING", call, int64(attempt), owner)
		return struct{}{}, err
	})
	return err
}

// FollowedStreams returns which attempts of calls that owner executes others
// follow; nothing but Call and Attempt is set.
func (s *Store) FollowedStreams(ctx context.Context, owner string) ([]agentbus.StreamPiece, error) {
	return list(ctx, s, "see which streams are followed", func(r *row) agentbus.StreamPiece {
		return agentbus.StreamPiece{Call: r.int64(), Attempt: r.int()}
	}, "SELECT w.call_id, w.attempt FROM followed_streams w WHERE w.owner = ?1 AND "+executingFollowed+" ORDER BY w.call_id", owner)
}

// WatchFollowers returns nil: nobody rings between the processes of a file. Look
// from time to time.
func (s *Store) WatchFollowers() (rung <-chan struct{}, release func()) { return nil, func() {} }

// TellStream tells those who follow a stream its next piece.
func (s *Store) TellStream(ctx context.Context, _ agentbus.Digest, p agentbus.StreamPiece) error {
	_, err := writeWith(ctx, s, "tell a piece of a stream", true, func(c *conn) (struct{}, error) {
		_, err := c.exec("INSERT INTO stream_pieces (call_id, attempt, place, status, head, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
			p.Call, int64(p.Attempt), int64(p.Place), int64(p.Status), rawjson.HeaderText(p.Header), blob(p.Data))
		return struct{}{}, err
	})
	return err
}

// toldAtOnce is how many pieces ToldStream returns at most.
const toldAtOnce = 16

// ToldStream returns what was told of the stream of an attempt from a place on,
// in order, at most 16 pieces.
func (s *Store) ToldStream(ctx context.Context, call int64, attempt, from int) ([]agentbus.StreamPiece, error) {
	return list(ctx, s, "read a stream elsewhere", func(r *row) agentbus.StreamPiece {
		p := agentbus.StreamPiece{Call: call, Attempt: attempt, Place: r.int(), Status: r.int()}
		r.json(&p.Header)
		p.Data = r.blob()
		return p
	}, "SELECT place, status, head, data FROM stream_pieces WHERE call_id = ?1 AND attempt = ?2 AND place >= ?3 ORDER BY place LIMIT ?4",
		call, int64(attempt), int64(from), int64(toldAtOnce))
}

// ForgetStream removes what was told of the stream of an attempt, and who follows
// it.
func (s *Store) ForgetStream(ctx context.Context, call int64, attempt int) error {
	_, err := write(ctx, s, "forget a stream", func(c *conn) (struct{}, error) {
		for _, table := range []string{"followed_streams", "stream_pieces"} {
			if _, err := c.exec("DELETE FROM "+table+" WHERE call_id = ?1 AND attempt = ?2", call, int64(attempt)); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}
