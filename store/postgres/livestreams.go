package postgres

import (
	"context"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// followersRoom is where those wait who want to know which of their streams
// others follow.
var followersRoom = roomOf("followers")

// executingFollowed holds for rows w whose call is executing under their attempt.
const executingFollowed = "EXISTS (SELECT 1 FROM calls c WHERE c.id = w.call_id AND c.attempts = w.attempt AND c.state = 'executing')"

// FollowStream asks the process that executes an attempt of a call to tell its
// stream to others from now on (G22). It is not durable: who follows looks at the
// ledger, too. What is left of calls that ended is removed.
func (s *Store) FollowStream(ctx context.Context, call int64, attempt int, owner string) error {
	const what = "follow a stream"
	for _, table := range []string{"followed_streams", "stream_pieces"} {
		if _, err := s.readers.Exec(ctx, "DELETE FROM "+table+" w WHERE NOT "+executingFollowed); err != nil {
			return unavailable(ctx, what, err)
		}
	}
	_, err := s.readers.Exec(ctx, "INSERT INTO followed_streams (call_id, attempt, owner) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", call, int64(attempt), storable(owner))
	if err != nil {
		return unavailable(ctx, what, err)
	}
	s.bells.ring(followersRoom)
	return nil
}

// FollowedStreams returns which attempts of calls that owner executes others
// follow; nothing but Call and Attempt is set.
func (s *Store) FollowedStreams(ctx context.Context, owner string) ([]agentbus.StreamPiece, error) {
	return list(ctx, s, "see which streams are followed", func(r *row) agentbus.StreamPiece {
		return agentbus.StreamPiece{Call: r.int64(), Attempt: r.int()}
	}, "SELECT w.call_id, w.attempt FROM followed_streams w WHERE w.owner = $1 AND "+executingFollowed+" ORDER BY w.call_id", storable(owner))
}

// WatchFollowers returns a channel that is closed soon after somebody asked to
// follow a stream, under the terms of [Store.WatchCall].
func (s *Store) WatchFollowers() (rung <-chan struct{}, release func()) {
	return s.bells.watch(followersRoom, false)
}

// TellStream tells those who follow a stream its next piece, and rings for those
// who wait for the call of key. It is not durable.
func (s *Store) TellStream(ctx context.Context, key agentbus.Digest, p agentbus.StreamPiece) error {
	const what = "tell a piece of a stream"
	_, err := s.readers.Exec(ctx, "INSERT INTO stream_pieces (call_id, attempt, place, status, head, data) VALUES ($1, $2, $3, $4, $5, $6)",
		p.Call, int64(p.Attempt), int64(p.Place), int64(p.Status), rawjson.HeaderText(p.Header), blob(p.Data))
	if err != nil {
		return unavailable(ctx, what, err)
	}
	s.bells.ring(roomOf(string(key[:])))
	return nil
}

// toldAtOnce is how many pieces ToldStream returns at most.
const toldAtOnce = 16

// ToldStream returns what was told of the stream of an attempt from a place on,
// in order, at most 16 pieces. A piece may be missing after a crash of the server.
func (s *Store) ToldStream(ctx context.Context, call int64, attempt, from int) ([]agentbus.StreamPiece, error) {
	return list(ctx, s, "read a stream elsewhere", func(r *row) agentbus.StreamPiece {
		p := agentbus.StreamPiece{Call: call, Attempt: attempt, Place: r.int(), Status: r.int()}
		r.json(&p.Header)
		p.Data = r.blob()
		return p
	}, "SELECT place, status, head, data FROM stream_pieces WHERE call_id = $1 AND attempt = $2 AND place >= $3 ORDER BY place LIMIT $4",
		call, int64(attempt), int64(from), int64(toldAtOnce))
}

// ForgetStream removes what was told of the stream of an attempt, and who follows
// it.
func (s *Store) ForgetStream(ctx context.Context, call int64, attempt int) error {
	for _, table := range []string{"followed_streams", "stream_pieces"} {
		if _, err := s.readers.Exec(ctx, "DELETE FROM "+table+" WHERE call_id = $1 AND attempt = $2", call, int64(attempt)); err != nil {
			return unavailable(ctx, "forget a stream", err)
		}
	}
	return nil
}
