-- +goose Up
-- Where the tasks of A2A agents are, and whose (A12). A row goes when its task
-- was not seen for a week.
CREATE TABLE remote_tasks (
    agent    TEXT NOT NULL,
    id       TEXT NOT NULL,
    upstream TEXT NOT NULL,
    payer    TEXT NOT NULL,
    context  TEXT NOT NULL,
    seen     INTEGER NOT NULL, -- microseconds
    PRIMARY KEY (agent, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX remote_tasks_by_context ON remote_tasks (agent, payer, context, seen);
CREATE INDEX remote_tasks_by_age ON remote_tasks (seen);

PRAGMA user_version = 7;
