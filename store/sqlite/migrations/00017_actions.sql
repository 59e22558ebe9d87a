-- +goose Up
-- What operators did on the admin listener, and what they were refused (U5).
CREATE TABLE actions (
    id      INTEGER PRIMARY KEY,
    at      INTEGER,
    who     TEXT NOT NULL,
    kind    TEXT NOT NULL,
    object  TEXT NOT NULL,
    run     TEXT NOT NULL,
    detail  TEXT NOT NULL,
    code    TEXT NOT NULL, -- '': it was done
    request TEXT NOT NULL
) STRICT;
CREATE INDEX actions_by_run ON actions (run, id) WHERE run <> '';
CREATE INDEX actions_by_object ON actions (object, id);

-- Agents that get no new calls, and who said so (U14).
CREATE TABLE drained_agents (
    agent      TEXT PRIMARY KEY,
    drained_by TEXT NOT NULL,
    at         INTEGER
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 17;
