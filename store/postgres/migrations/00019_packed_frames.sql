-- +goose Up
-- A part of a stream is packed as whole answers are, in the block format of S2: its
-- events repeat themselves.
ALTER TABLE frames ADD COLUMN packed BOOLEAN NOT NULL DEFAULT false;
