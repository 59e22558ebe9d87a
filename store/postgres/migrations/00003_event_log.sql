-- +goose Up
-- Which node of the run's plan an event is of, and how many events before it in
-- its append caused it.
ALTER TABLE events ADD COLUMN node TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE held_events ADD COLUMN node TEXT COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN back BIGINT NOT NULL DEFAULT 0;

-- Keys under which payers started runs, until they expire (E6).
CREATE TABLE run_keys (
    payer   TEXT   COLLATE "C" NOT NULL,
    key     TEXT   COLLATE "C" NOT NULL,
    digest  BYTEA  NOT NULL,
    run     TEXT   COLLATE "C" NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (payer, key)
);
CREATE INDEX run_keys_by_expiry ON run_keys (expires);
CREATE INDEX executions_by_payer ON executions (payer, began DESC, id DESC) WHERE id = run;
