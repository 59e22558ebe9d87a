-- +goose Up
-- The interrupts that a task waits for, a JSON array, so that it goes on when one
-- of them is decided (R22).
ALTER TABLE a2a_tasks ADD COLUMN waits TEXT;
CREATE INDEX a2a_tasks_waiting ON a2a_tasks (id) WHERE waits IS NOT NULL;

PRAGMA user_version = 14;
