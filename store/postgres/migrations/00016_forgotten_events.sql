-- +goose Up
-- How many events a finished execution had before they were removed; 0: they are
-- there (retention.events).
ALTER TABLE executions ADD COLUMN forgotten BIGINT NOT NULL DEFAULT 0;
