-- +goose Up
-- Runs at a glance, for lists that are sorted, or chosen by how runs stand (U10).
-- Whoever asks for such a list first brings up to date what changed since, which
-- is what is marked as changed, and what still moves.
CREATE TABLE run_figures (
    number   BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run      TEXT    COLLATE "C" NOT NULL UNIQUE,
    standing TEXT    COLLATE "C" NOT NULL,
    moves    BOOLEAN NOT NULL, -- a call or a driver of it has not ended
    cost     BIGINT  NOT NULL,
    saved    BIGINT  NOT NULL,
    turns    BIGINT  NOT NULL,
    depth    BIGINT  NOT NULL,
    tokens   BIGINT  NOT NULL,
    retries  BIGINT  NOT NULL,
    refusals BIGINT  NOT NULL,
    duration BIGINT  NOT NULL,
    last     BIGINT  NOT NULL,
    began    BIGINT  NOT NULL
);
CREATE INDEX runs_by_standing ON run_figures (standing, began, number);
CREATE INDEX runs_by_cost     ON run_figures (cost, began, number);
CREATE INDEX runs_by_saved    ON run_figures (saved, began, number);
CREATE INDEX runs_by_turns    ON run_figures (turns, began, number);
CREATE INDEX runs_by_depth    ON run_figures (depth, began, number);
CREATE INDEX runs_by_tokens   ON run_figures (tokens, began, number);
CREATE INDEX runs_by_retries  ON run_figures (retries, began, number);
CREATE INDEX runs_by_refusals ON run_figures (refusals, began, number);
CREATE INDEX runs_by_duration ON run_figures (duration, began, number);
CREATE INDEX runs_by_last     ON run_figures (last, began, number);
CREATE INDEX runs_by_began    ON run_figures (began, number);
CREATE INDEX runs_that_move   ON run_figures (run) WHERE moves;

-- A mark is a row of its own, in the transaction of the change: no transaction
-- waits for another because of it, and none is seen before its change.
CREATE TABLE changed_runs (run TEXT COLLATE "C" NOT NULL);
INSERT INTO changed_runs (run) SELECT run FROM opened_runs UNION SELECT run FROM executions;
-- +goose StatementBegin
CREATE FUNCTION mark_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changed_runs (run) SELECT DISTINCT run FROM changed;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER call_made AFTER INSERT ON calls REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION mark_runs();
CREATE TRIGGER call_changed AFTER UPDATE ON calls REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION mark_runs();
CREATE TRIGGER execution_opened AFTER INSERT ON executions REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION mark_runs();
CREATE TRIGGER execution_changed AFTER UPDATE ON executions REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION mark_runs();
CREATE TRIGGER run_stopped AFTER INSERT ON stopped_runs REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION mark_runs();
