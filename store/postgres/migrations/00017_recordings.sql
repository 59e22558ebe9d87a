-- +goose Up
-- What calls were asked, and the headers they came and went on with, where the
-- operator has requests recorded. A row is of the last attempt that was.
CREATE TABLE recordings (
    call_id BIGINT  PRIMARY KEY,
    attempt BIGINT  NOT NULL,
    at      BIGINT  NOT NULL,
    size    BIGINT  NOT NULL, -- of the body as it came
    cut     BOOLEAN NOT NULL,
    came    TEXT    COLLATE "C", -- headers
    went    TEXT    COLLATE "C",
    body    BYTEA,
    packed  BOOLEAN NOT NULL
);
CREATE INDEX recordings_by_age ON recordings (at);
