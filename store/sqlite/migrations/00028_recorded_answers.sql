-- +goose Up
-- What a recorded call was answered, as far as it is kept. answer_size is that of
-- the answer as it came; NULL: none has.
ALTER TABLE recordings ADD COLUMN answer_size INTEGER;
ALTER TABLE recordings ADD COLUMN answer_cut INTEGER NOT NULL DEFAULT 0;
ALTER TABLE recordings ADD COLUMN answer BLOB;
ALTER TABLE recordings ADD COLUMN answer_packed INTEGER NOT NULL DEFAULT 0; -- 1: answer is packed

PRAGMA user_version = 28;
