-- +goose Up
-- A part of a stream is packed as whole answers are, in the block format of S2: its
-- events repeat themselves.
ALTER TABLE frames ADD COLUMN packed INTEGER NOT NULL DEFAULT 0; -- 1: data is packed

PRAGMA user_version = 27;
