-- +goose Up
-- Events that wait for their position: those of turns that are performed side
-- by side, until all of them are final. They are stored with their turns, and
-- move to events in an order that does not depend on which turn was faster
-- (R20).
CREATE TABLE held_events (
    number  INTEGER NOT NULL, -- of the execution
    hold    INTEGER NOT NULL, -- their order among each other, then their arrival
    arrival INTEGER NOT NULL,
    at      INTEGER,
    type    TEXT NOT NULL,
    run     TEXT NOT NULL,
    turn    TEXT NOT NULL,
    cause   TEXT NOT NULL,
    data    BLOB,
    PRIMARY KEY (number, hold, arrival)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 4;
