-- +goose Up
-- A run that nobody drives waits while something below it asks (U10): its figures
-- change with the decision.
-- +goose StatementBegin
CREATE TRIGGER run_asks AFTER INSERT ON interrupts BEGIN
    INSERT INTO changed_runs (run) SELECT new.run WHERE NOT EXISTS (SELECT 1 FROM changed_runs WHERE run = new.run);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER run_was_answered AFTER UPDATE OF decision ON interrupts BEGIN
    INSERT INTO changed_runs (run) SELECT new.run WHERE NOT EXISTS (SELECT 1 FROM changed_runs WHERE run = new.run);
END;
-- +goose StatementEnd
INSERT OR IGNORE INTO changed_runs (run) SELECT run FROM interrupts WHERE decision = '';

PRAGMA user_version = 29;
