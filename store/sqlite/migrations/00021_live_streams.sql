-- +goose Up
-- Streams that one process executes and others follow (G22): who follows what,
-- and what was told of it so far. The ledger has the answer once the call has
-- ended.
CREATE TABLE followed_streams (
    call_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    owner   TEXT    NOT NULL, -- who executes it
    PRIMARY KEY (call_id, attempt)
) STRICT, WITHOUT ROWID;
CREATE TABLE stream_pieces (
    call_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    status  INTEGER NOT NULL, -- of the answer, at place 0
    head    TEXT,
    data    BLOB,
    UNIQUE (call_id, attempt, place)
) STRICT;

PRAGMA user_version = 21;
