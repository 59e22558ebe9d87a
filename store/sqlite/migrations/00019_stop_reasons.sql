-- +goose Up
-- Why a run was stopped, as whoever cancelled it said (E4).
ALTER TABLE stopped_runs ADD COLUMN reason TEXT NOT NULL DEFAULT '';

PRAGMA user_version = 19;
