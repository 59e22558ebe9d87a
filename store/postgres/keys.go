package postgres

import (
	"context"
	"time"

	"github.com/agentbus/agentbus"
)

const keyColumns = "hash, handle, principal, role, inter_agent, created, revoked, grants"

func readKey(r *row) agentbus.APIKey {
	k := agentbus.APIKey{Hash: r.digest(), Handle: r.text()}
	k.Principal = agentbus.Principal{ID: r.text(), Role: agentbus.PrincipalRole(r.text()), InterAgent: r.bool()}
	k.Created, k.Revoked = r.time(), r.time()
	r.json(&k.Principal.Grants)
	return k
}

// CreateKey stores a key by its hash (G4). CodeInvalidRequest: there is one
// with that hash.
func (s *Store) CreateKey(ctx context.Context, k agentbus.APIKey) error {
	const what = "create a key"
	var grants any
	if k.Principal.Grants != nil {
		text, err := jsonText(k.Principal.Grants)
		if err != nil {
			return unavailable(ctx, what, &rowError{err})
		}
		grants = text
	}
	_, err := write(ctx, s, what, func(c *conn) (struct{}, error) {
		changed, err := c.exec("INSERT INTO api_keys ("+keyColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (hash) DO NOTHING",
			k.Hash[:], k.Handle, k.Principal.ID, string(k.Principal.Role), k.Principal.InterAgent, micros(k.Created), micros(k.Revoked), grants)
		if err == nil && changed == 0 {
			err = refusal(agentbus.CodeInvalidRequest, "this key exists already; create another one")
		}
		return struct{}{}, err
	})
	return err
}

// Keys returns all keys, revoked ones included, oldest first.
func (s *Store) Keys(ctx context.Context) ([]agentbus.APIKey, error) {
	return list(ctx, s, "list keys", readKey, "SELECT "+keyColumns+" FROM api_keys ORDER BY created NULLS FIRST, number")
}

// RevokeKey revokes the keys with this handle or of this principal, and returns
// how many were in force until now. They are refused from now on, by every
// process.
func (s *Store) RevokeKey(ctx context.Context, handleOrPrincipalID string) (n int, err error) {
	return write(ctx, s, "revoke a key", func(c *conn) (int, error) {
		changed, err := c.exec("UPDATE api_keys SET revoked = $2 WHERE (handle = $1 OR principal = $1) AND revoked IS NULL",
			handleOrPrincipalID, micros(time.Now()))
		return int(changed), err
	})
}

// KeyByHash returns the key with this hash, and whether there is one in force.
func (s *Store) KeyByHash(ctx context.Context, hash agentbus.Digest) (key agentbus.APIKey, found bool, err error) {
	return only(ctx, s, "look up a key", readKey, "SELECT "+keyColumns+" FROM api_keys WHERE hash = $1 AND revoked IS NULL", hash[:])
}
