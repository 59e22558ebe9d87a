-- +goose Up
-- What calls were asked, and the headers they came and went on with, where the
-- operator has requests recorded. A row is of the last attempt that was.
CREATE TABLE recordings (
    call_id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    size    INTEGER NOT NULL, -- of the body as it came
    cut     INTEGER NOT NULL,
    came    TEXT,             -- headers
    went    TEXT,
    body    BLOB,
    packed  INTEGER NOT NULL
) STRICT;
CREATE INDEX recordings_by_age ON recordings (at);

PRAGMA user_version = 25;
