-- +goose Up
-- Tasks of the face of A2A (A25). work is there until the task is over.
CREATE TABLE a2a_tasks (
    id        TEXT PRIMARY KEY,
    agent     TEXT NOT NULL,
    principal TEXT NOT NULL,
    payer     TEXT NOT NULL,
    context   TEXT NOT NULL,
    state     TEXT NOT NULL,
    version   INTEGER NOT NULL,
    owner     TEXT NOT NULL,
    created   INTEGER NOT NULL,
    updated   INTEGER NOT NULL,
    shown     BLOB NOT NULL,
    work      BLOB,
    sealed    BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX a2a_tasks_by_principal ON a2a_tasks (principal, agent, updated, id);
CREATE INDEX a2a_tasks_owned ON a2a_tasks (owner) WHERE owner != '';
CREATE INDEX a2a_tasks_over ON a2a_tasks (updated) WHERE work IS NULL;

-- The messages that tasks were made of (A19), for 24 hours.
CREATE TABLE a2a_messages (
    principal TEXT NOT NULL,
    agent     TEXT NOT NULL,
    message   TEXT NOT NULL,
    digest    BLOB NOT NULL,
    task      TEXT NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (principal, agent, message)
) STRICT, WITHOUT ROWID;

CREATE INDEX a2a_messages_by_age ON a2a_messages (at);

-- What the client of A2A knows of its conversations (A24).
CREATE TABLE a2a_sessions (
    key   BLOB PRIMARY KEY,
    state BLOB NOT NULL,
    at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX a2a_sessions_by_age ON a2a_sessions (at);

PRAGMA user_version = 8;
