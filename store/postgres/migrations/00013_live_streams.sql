-- +goose Up
-- Streams that one replica executes and others follow (G22): who follows what,
-- and what was told of it so far. A crash of the server empties both; the ledger
-- has the answer once the call has ended.
CREATE UNLOGGED TABLE followed_streams (
    call_id BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    owner   TEXT   COLLATE "C" NOT NULL, -- who executes it
    PRIMARY KEY (call_id, attempt)
);
CREATE UNLOGGED TABLE stream_pieces (
    call_id BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    place   BIGINT NOT NULL,
    status  BIGINT NOT NULL, -- of the answer, at place 0
    head    TEXT   COLLATE "C",
    data    BYTEA,
    PRIMARY KEY (call_id, attempt, place)
);
