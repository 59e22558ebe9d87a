-- +goose Up
-- A run that nobody drives waits while something below it asks (U10): its figures
-- change with the decision.
CREATE TRIGGER run_asks AFTER INSERT ON interrupts REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION mark_runs();
CREATE TRIGGER run_was_answered AFTER UPDATE ON interrupts REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION mark_runs();
INSERT INTO changed_runs (run) SELECT DISTINCT run FROM interrupts WHERE decision = '';
