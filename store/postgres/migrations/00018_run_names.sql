-- +goose Up
-- Who took part in which run, for lists that are filtered by it (U10). They are
-- written with the figures of a run, once for each of its names; the runs that
-- were before are added up anew.
CREATE TABLE run_names (
    kind   TEXT   COLLATE "C" NOT NULL, -- payer, agent, speaker or conversation
    name   TEXT   COLLATE "C" NOT NULL,
    number BIGINT NOT NULL, -- of the run, in run_figures
    PRIMARY KEY (kind, name, number)
);
INSERT INTO changed_runs (run) SELECT run FROM run_figures;
