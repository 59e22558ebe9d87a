-- +goose Up
-- The place of a call in the chain of agents, as JSON; NULL: it is part of none
-- (C11).
ALTER TABLE calls ADD COLUMN chain TEXT;

-- Evidence of identity and signed hops count once, until they expire (C16, C22).
-- A digest is of issuer, id and audience.
CREATE TABLE used_proofs (
    digest  BLOB    PRIMARY KEY,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX used_proofs_by_expiry ON used_proofs (expires);

-- The signed hops of calls: what was received and what was sent on (C16).
CREATE TABLE hop_tokens (
    id      INTEGER PRIMARY KEY,
    run     TEXT    NOT NULL,
    request TEXT    NOT NULL, -- the request id of the call
    sent    INTEGER NOT NULL, -- 1: to the agent, 0: received
    token   TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT;
CREATE INDEX hop_tokens_by_run ON hop_tokens (run, id);

PRAGMA user_version = 9;
