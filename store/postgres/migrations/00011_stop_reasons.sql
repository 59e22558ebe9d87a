-- +goose Up
-- Why a run was stopped, as whoever cancelled it said (E4).
ALTER TABLE stopped_runs ADD COLUMN reason TEXT COLLATE "C" NOT NULL DEFAULT '';
