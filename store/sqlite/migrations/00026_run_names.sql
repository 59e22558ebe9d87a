-- +goose Up
-- Who took part in which run, for lists that are filtered by it (U10). They are
-- written with the figures of a run, once for each of its names; whoever asks for
-- such a list first has the runs added up anew that were before.
CREATE TABLE run_names (
    kind   TEXT    NOT NULL, -- payer, agent, speaker or conversation
    name   TEXT    NOT NULL,
    number INTEGER NOT NULL, -- of the run, in run_figures
    PRIMARY KEY (kind, name, number)
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO changed_runs (run) SELECT run FROM run_figures;

PRAGMA user_version = 26;
