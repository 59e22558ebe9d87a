-- +goose Up
-- The answer that is kept of a settled call stands apart from the call: the
-- row of a call is small and rewritten twice, the answer is written once and
-- swept as a whole (G25). A body above 1 MiB is cut into frames.
CREATE TABLE replies (
    call_id INTEGER PRIMARY KEY,
    head    TEXT, -- JSON object of the reply's header
    body    BLOB, -- behind what stands in frames
    packed  INTEGER NOT NULL DEFAULT 0 -- 1: body is packed, in the block format of S2
) STRICT;
INSERT INTO replies (call_id, head, body) SELECT id, head, body FROM calls WHERE kept = 1;
ALTER TABLE calls DROP COLUMN head;
ALTER TABLE calls DROP COLUMN body;

-- The frames of a call lie side by side, so that they need no index: their id
-- is the id of the call, shifted left by 28 bits, plus their place.
CREATE TABLE streamed (
    id   INTEGER PRIMARY KEY, -- call << 28 | place
    data BLOB NOT NULL
) STRICT;
INSERT INTO streamed (id, data)
    SELECT (call_id << 28) + row_number() OVER (PARTITION BY call_id ORDER BY id) - 1, data FROM frames;
DROP TABLE frames;
ALTER TABLE streamed RENAME TO frames;

-- What calls came to, a line an ended attempt, never changed, each payer's with
-- a sequence of its own (G28). What an entry says of its call stands in calls
-- alone, and is under its hash as well: agent, run, turn and key. The sums are
-- those of the payer's entries up to here, so that a balance is one row to
-- read.
CREATE TABLE entries (
    payer        TEXT    NOT NULL,
    seq          INTEGER NOT NULL, -- dense from 1
    kind         TEXT    NOT NULL,
    call_id      INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    amount       INTEGER NOT NULL,
    unbilled     INTEGER NOT NULL,
    at           INTEGER,
    hash         BLOB    NOT NULL, -- over the entry and the hash of the one before
    charged_sum  INTEGER NOT NULL,
    unbilled_sum INTEGER NOT NULL,
    charges      INTEGER NOT NULL, -- how many of the entries up to here are charges
    PRIMARY KEY (payer, seq)
) STRICT, WITHOUT ROWID;

-- Budgets by account, and what calls in flight hold of them (G27).
CREATE TABLE accounts (
    account TEXT    PRIMARY KEY,
    held    INTEGER NOT NULL,
    spent   INTEGER NOT NULL,
    calls   INTEGER NOT NULL, -- settled and in flight
    opened  INTEGER           -- when its first call began
) STRICT, WITHOUT ROWID;
CREATE TABLE holds (
    call_id  INTEGER PRIMARY KEY,
    amount   INTEGER NOT NULL, -- held of each of the accounts
    accounts TEXT    NOT NULL  -- JSON array
) STRICT;

CREATE TABLE stopped_runs (
    run        TEXT PRIMARY KEY,
    stopped_by TEXT NOT NULL,
    at         INTEGER
) STRICT, WITHOUT ROWID;

ALTER TABLE api_keys ADD COLUMN grants TEXT; -- JSON, NULL: none

PRAGMA user_version = 2;
