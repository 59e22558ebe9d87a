-- +goose Up
-- What a recorded call was answered, as far as it is kept. answer_size is that of
-- the answer as it came; NULL: none has.
ALTER TABLE recordings ADD COLUMN answer_size BIGINT;
ALTER TABLE recordings ADD COLUMN answer_cut BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE recordings ADD COLUMN answer BYTEA;
ALTER TABLE recordings ADD COLUMN answer_packed BOOLEAN NOT NULL DEFAULT false;
