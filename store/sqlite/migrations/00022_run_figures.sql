-- +goose Up
-- Runs at a glance, for lists that are sorted, or chosen by how runs stand (U10).
-- Nothing is written here on the way of a call: whoever asks for such a list first
-- brings up to date what changed since, which is calls behind those that were
-- seen, what is marked as changed, and what still moves.
CREATE TABLE run_figures (
    number   INTEGER PRIMARY KEY,
    run      TEXT    NOT NULL UNIQUE,
    standing TEXT    NOT NULL,
    moves    INTEGER NOT NULL, -- 1: a call or a driver of it has not ended
    cost     INTEGER NOT NULL,
    saved    INTEGER NOT NULL,
    turns    INTEGER NOT NULL,
    depth    INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,
    retries  INTEGER NOT NULL,
    refusals INTEGER NOT NULL,
    duration INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    began    INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_by_standing ON run_figures (standing, began);
CREATE INDEX runs_by_cost     ON run_figures (cost, began);
CREATE INDEX runs_by_saved    ON run_figures (saved, began);
CREATE INDEX runs_by_turns    ON run_figures (turns, began);
CREATE INDEX runs_by_depth    ON run_figures (depth, began);
CREATE INDEX runs_by_tokens   ON run_figures (tokens, began);
CREATE INDEX runs_by_retries  ON run_figures (retries, began);
CREATE INDEX runs_by_refusals ON run_figures (refusals, began);
CREATE INDEX runs_by_duration ON run_figures (duration, began);
CREATE INDEX runs_by_last     ON run_figures (last, began);
CREATE INDEX runs_by_began    ON run_figures (began);
CREATE INDEX runs_that_move   ON run_figures (run) WHERE moves = 1;

CREATE TABLE seen_calls (last INTEGER NOT NULL) STRICT; -- one row: calls up to it are in run_figures, or marked
INSERT INTO seen_calls (last) VALUES (0);

-- What changes without a new call. A call that is executed again has another
-- request; one that ends moved before.
CREATE TABLE changed_runs (run TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
INSERT INTO changed_runs (run) SELECT DISTINCT run FROM executions;
-- +goose StatementBegin
CREATE TRIGGER call_changed AFTER UPDATE OF replays, repeats, request_id ON calls BEGIN
    INSERT INTO changed_runs (run) SELECT new.run WHERE NOT EXISTS (SELECT 1 FROM changed_runs WHERE run = new.run);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER execution_opened AFTER INSERT ON executions BEGIN
    INSERT INTO changed_runs (run) SELECT new.run WHERE NOT EXISTS (SELECT 1 FROM changed_runs WHERE run = new.run);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER execution_changed AFTER UPDATE OF state, halt ON executions BEGIN
    INSERT INTO changed_runs (run) SELECT new.run WHERE NOT EXISTS (SELECT 1 FROM changed_runs WHERE run = new.run);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER run_stopped AFTER INSERT ON stopped_runs BEGIN
    INSERT INTO changed_runs (run) SELECT new.run WHERE NOT EXISTS (SELECT 1 FROM changed_runs WHERE run = new.run);
END;
-- +goose StatementEnd

PRAGMA user_version = 22;
