-- +goose Up
-- How many events a finished execution had before they were removed; 0: they are
-- there (retention.events).
ALTER TABLE executions ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;

PRAGMA user_version = 24;
