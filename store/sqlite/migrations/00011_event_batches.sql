-- +goose Up
-- Events stand as they were appended together, one row an append: a turn's
-- events are one row to write, and one to read (R14). A row holds a JSON array;
-- its first event has the position that the id says.
CREATE TABLE event_batches (
    id     INTEGER PRIMARY KEY, -- number << 28 | position of the first
    n      INTEGER NOT NULL,    -- how many
    packed INTEGER NOT NULL,    -- 1: events is packed, in the block format of S2
    events BLOB    NOT NULL
) STRICT;
INSERT INTO event_batches (id, n, packed, events)
    SELECT id, 1, 0, CAST(json_array(json_object('t', type, 'a', coalesce(at, 0), 'r', run, 'u', turn, 'c', cause,
        'd', json(coalesce(CAST(data AS TEXT), 'null')))) AS BLOB) FROM events;
DROP TABLE events;

-- Those that wait for their position stand in the same form (R20).
CREATE TABLE held_batches (
    number  INTEGER NOT NULL, -- of the execution
    hold    INTEGER NOT NULL, -- their order among each other, then their arrival
    arrival INTEGER NOT NULL,
    n       INTEGER NOT NULL,
    packed  INTEGER NOT NULL,
    events  BLOB    NOT NULL,
    PRIMARY KEY (number, hold, arrival)
) STRICT, WITHOUT ROWID;
INSERT INTO held_batches (number, hold, arrival, n, packed, events)
    SELECT number, hold, arrival, 1, 0, CAST(json_array(json_object('t', type, 'a', coalesce(at, 0), 'r', run, 'u', turn, 'c', cause,
        'd', json(coalesce(CAST(data AS TEXT), 'null')))) AS BLOB) FROM held_events;
DROP TABLE held_events;

-- Runs that were asked for under a key of their caller's (E6).
CREATE TABLE run_keys (
    payer   TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    digest  BLOB    NOT NULL, -- of what was asked for
    run     TEXT    NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (payer, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_keys_by_expiry ON run_keys (expires);

-- Top-level runs by who pays for them, newest last.
CREATE INDEX executions_by_payer ON executions (payer, began, id) WHERE id = run;

PRAGMA user_version = 11;
