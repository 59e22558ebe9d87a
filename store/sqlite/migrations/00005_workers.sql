-- +goose Up
-- Runs by who drives them: those whose driver is gone are found without looking
-- at those that are driven (R19). A run that serves a call of somebody else is
-- not among them: its id is not that of its run.
CREATE INDEX executions_by_driver ON executions (owner, expires) WHERE state = 'running' AND id = run;

-- Credentials of runs that are not over, sealed under a key that is not kept
-- here (R18). A row goes when its run ends or is stopped.
CREATE TABLE sealed_credentials (
    execution TEXT PRIMARY KEY,
    sealed    BLOB NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 5;
