-- +goose Up
-- Events say which node of a run's plan acted (E9). One that waits for its
-- position may be caused by one that does too: by the one so many before it.
ALTER TABLE events ADD COLUMN node TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE held_events ADD COLUMN node TEXT COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN back BIGINT NOT NULL DEFAULT 0;

-- Runs that were asked for under a key of their caller's (E6).
CREATE TABLE run_keys (
    payer   TEXT   COLLATE "C" NOT NULL,
    key     TEXT   COLLATE "C" NOT NULL,
    digest  BYTEA  NOT NULL, -- of what was asked for
    run     TEXT   COLLATE "C" NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (payer, key)
);
CREATE INDEX run_keys_by_expiry ON run_keys (expires);

-- Top-level runs by who pays for them, newest last.
CREATE INDEX executions_by_payer ON executions (payer, began, id) WHERE id = run;
