-- +goose Up
-- What runs wait for (R22). A row is written with the halt of its run, and
-- resolved once. policy and resume are for the backend that asked, and hold
-- secrets of its own; ask holds none.
CREATE TABLE interrupts (
    number     INTEGER PRIMARY KEY, -- in the order in which they were raised
    id         TEXT NOT NULL UNIQUE,
    run        TEXT NOT NULL,
    execution  TEXT NOT NULL, -- whose participant asks
    root       TEXT NOT NULL, -- that goes on when it is resolved
    turn       TEXT NOT NULL,
    payer      TEXT NOT NULL,
    path       TEXT NOT NULL, -- JSON array
    ask        TEXT NOT NULL, -- JSON
    policy     BLOB,
    resume     BLOB,
    raised     INTEGER,
    expires    INTEGER,
    decision   TEXT NOT NULL DEFAULT '', -- '': it waits
    text       TEXT NOT NULL DEFAULT '',
    resolution BLOB, -- of the policy part
    decided_by TEXT NOT NULL DEFAULT '',
    decided    INTEGER
) STRICT;
CREATE INDEX interrupts_by_run ON interrupts (run, number);
CREATE INDEX interrupts_waiting ON interrupts (number) WHERE decision = '';
CREATE INDEX interrupts_by_expiry ON interrupts (expires) WHERE decision = '';

-- How many wait: what bounds them costs the same however many they are.
CREATE TABLE waiting_interrupts (n INTEGER NOT NULL) STRICT;
INSERT INTO waiting_interrupts (n) VALUES (0);
-- +goose StatementBegin
CREATE TRIGGER interrupt_raised AFTER INSERT ON interrupts BEGIN
    UPDATE waiting_interrupts SET n = n + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER interrupt_resolved AFTER UPDATE OF decision ON interrupts WHEN old.decision = '' AND new.decision <> '' BEGIN
    UPDATE waiting_interrupts SET n = n - 1;
END;
-- +goose StatementEnd

PRAGMA user_version = 6;
