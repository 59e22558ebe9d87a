-- +goose Up
-- Times are microseconds since 1970 in UTC, money is millionths of a dollar,
-- digests are 32 bytes. No column holds a credential (P19, I8). A text with a
-- NUL in it, which PostgreSQL cannot hold, is written with that byte as \x1a
-- and two hex digits. Texts compare by their bytes.

-- Who executes what, once (G20). Rows of state refused and passed executed
-- nothing; their key has a leading byte, so that it never meets that of a call.
-- What a payer's calls come to is decided under the lock of its row in payers.
CREATE SEQUENCE call_ids CACHE 1;
CREATE TABLE calls (
    id            BIGINT  NOT NULL,
    key           BYTEA   NOT NULL,
    state         TEXT    COLLATE "C" NOT NULL,
    attempts      BIGINT  NOT NULL,
    payer         TEXT    COLLATE "C" NOT NULL,
    agent         TEXT    COLLATE "C" NOT NULL,
    run           TEXT    COLLATE "C" NOT NULL,
    path          TEXT    COLLATE "C" NOT NULL,
    parent        TEXT    COLLATE "C" NOT NULL,
    turn          TEXT    COLLATE "C" NOT NULL,
    turn_index    BIGINT  NOT NULL, -- of the turn id within the run; -1: none
    request_id    TEXT    COLLATE "C" NOT NULL,
    caller        TEXT    COLLATE "C" NOT NULL,
    speaker       TEXT    COLLATE "C" NOT NULL,
    depth         BIGINT  NOT NULL,
    digest        BYTEA   NOT NULL,
    owner         TEXT    COLLATE "C" NOT NULL,
    stream        BOOLEAN NOT NULL,
    replays       BIGINT  NOT NULL DEFAULT 0,
    repeats       BIGINT  NOT NULL DEFAULT 0,
    status        BIGINT  NOT NULL DEFAULT 0,
    code          TEXT    COLLATE "C" NOT NULL DEFAULT '',
    message       TEXT    COLLATE "C" NOT NULL DEFAULT '',
    input_tokens  BIGINT  NOT NULL DEFAULT 0,
    cached_tokens BIGINT  NOT NULL DEFAULT 0,
    output_tokens BIGINT  NOT NULL DEFAULT 0,
    usage_cost    BIGINT  NOT NULL DEFAULT 0,
    estimated     BOOLEAN NOT NULL DEFAULT false,
    cost          BIGINT  NOT NULL DEFAULT 0,
    unbilled      BIGINT  NOT NULL DEFAULT 0,
    notes         TEXT    COLLATE "C", -- JSON array
    began         BIGINT,
    ended         BIGINT,
    chain         TEXT    COLLATE "C", -- JSON, NULL: it is part of none (C11)
    PRIMARY KEY (payer, id),
    UNIQUE (payer, key)
) PARTITION BY HASH (payer);
CREATE INDEX calls_by_id ON calls (id);
CREATE INDEX calls_by_key ON calls (key);
CREATE INDEX calls_by_run ON calls (run, payer, parent, turn_index);
CREATE INDEX executing_calls ON calls (id) WHERE state = 'executing';

-- Runs that the ledger saw, from their first call on.
CREATE TABLE opened_runs (
    run    TEXT COLLATE "C" PRIMARY KEY,
    opened BIGINT,
    payer  TEXT COLLATE "C" NOT NULL
);
CREATE INDEX runs_by_opening ON opened_runs (opened, run);

-- The bytes of a stream as they came (G21). They belong to the call's current
-- attempt.
CREATE TABLE frames (
    call_id BIGINT NOT NULL,
    place   BIGINT NOT NULL,
    data    BYTEA  NOT NULL,
    PRIMARY KEY (call_id, place)
) PARTITION BY HASH (call_id);

-- The answer that is kept of a settled call, until it is swept (G25). A body
-- above 1 MiB is cut into frames.
CREATE TABLE replies (
    call_id BIGINT  NOT NULL PRIMARY KEY,
    head    TEXT    COLLATE "C", -- JSON object of the reply's header
    body    BYTEA, -- behind what stands in frames
    packed  BOOLEAN NOT NULL -- body is packed, in the block format of S2
) PARTITION BY HASH (call_id);

-- The end of each payer's chain of entries, and what it sums up to.
CREATE TABLE payers (
    payer        TEXT   COLLATE "C" PRIMARY KEY,
    seq          BIGINT NOT NULL DEFAULT 0,
    hash         BYTEA  NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    charged_sum  BIGINT NOT NULL DEFAULT 0,
    unbilled_sum BIGINT NOT NULL DEFAULT 0,
    charges      BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- What calls came to, a line an ended attempt, never changed, each payer's with
-- a sequence of its own (G28). What an entry says of its call stands in calls
-- alone, and is under its hash as well: agent, run, turn and key.
CREATE TABLE entries (
    payer        TEXT   COLLATE "C" NOT NULL,
    seq          BIGINT NOT NULL, -- dense from 1
    kind         TEXT   COLLATE "C" NOT NULL,
    call_id      BIGINT NOT NULL,
    attempt      BIGINT NOT NULL,
    amount       BIGINT NOT NULL,
    unbilled     BIGINT NOT NULL,
    at           BIGINT,
    hash         BYTEA  NOT NULL, -- over the entry and the hash of the one before
    charged_sum  BIGINT NOT NULL,
    unbilled_sum BIGINT NOT NULL,
    charges      BIGINT NOT NULL, -- how many of the entries up to here are charges
    PRIMARY KEY (payer, seq)
) PARTITION BY HASH (payer);

-- Budgets by account, and what calls in flight hold of them (G27).
CREATE TABLE accounts (
    account TEXT   COLLATE "C" PRIMARY KEY,
    held    BIGINT NOT NULL DEFAULT 0,
    spent   BIGINT NOT NULL DEFAULT 0,
    calls   BIGINT NOT NULL DEFAULT 0, -- settled and in flight
    opened  BIGINT -- when its first call began
) WITH (fillfactor = 50);
CREATE TABLE holds (
    call_id  BIGINT PRIMARY KEY,
    amount   BIGINT NOT NULL, -- held of each of the accounts
    accounts TEXT   COLLATE "C" NOT NULL -- JSON array
);

CREATE TABLE stopped_runs (
    run        TEXT COLLATE "C" PRIMARY KEY,
    stopped_by TEXT COLLATE "C" NOT NULL,
    at         BIGINT
);

-- Driver loops and their leases (R7, R17).
CREATE TABLE executions (
    number       BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    id           TEXT   COLLATE "C" PRIMARY KEY,
    run          TEXT   COLLATE "C" NOT NULL,
    conversation TEXT   COLLATE "C" NOT NULL,
    definition   BYTEA  NOT NULL,
    seed         TEXT   COLLATE "C" NOT NULL,
    payer        TEXT   COLLATE "C" NOT NULL,
    path         TEXT   COLLATE "C" NOT NULL,
    parent       TEXT   COLLATE "C" NOT NULL,
    depth        BIGINT NOT NULL,
    first        BIGINT NOT NULL,
    spec         BYTEA,
    state        TEXT   COLLATE "C" NOT NULL,
    halt         TEXT   COLLATE "C", -- JSON, why it was stopped last, also once it runs again
    owner        TEXT   COLLATE "C" NOT NULL,
    epoch        BIGINT NOT NULL,
    expires      BIGINT, -- by this server's clock
    began        BIGINT,
    ended        BIGINT
);
CREATE INDEX executions_by_run ON executions (run, began);
CREATE INDEX executions_by_beginning ON executions (began, run);
CREATE INDEX executions_by_driver ON executions (owner, expires) WHERE state = 'running' AND id = run;

-- The journal: what was intended and what came of it (R14).
CREATE TABLE turns (
    number   BIGINT  NOT NULL, -- of the execution
    idx      BIGINT  NOT NULL,
    turn     TEXT    COLLATE "C" NOT NULL,
    odd      BOOLEAN NOT NULL, -- the turn id does not name the index
    payer    TEXT    COLLATE "C" NOT NULL,
    agent    TEXT    COLLATE "C" NOT NULL,
    run      TEXT    COLLATE "C" NOT NULL,
    path     TEXT    COLLATE "C" NOT NULL,
    parent   TEXT    COLLATE "C" NOT NULL,
    speaker  TEXT    COLLATE "C" NOT NULL,
    digest   BYTEA   NOT NULL,
    epoch    BIGINT  NOT NULL,
    state    TEXT    COLLATE "C" NOT NULL,
    cost     BIGINT  NOT NULL,
    attempts BIGINT  NOT NULL,
    error    TEXT    COLLATE "C", -- JSON
    began    BIGINT,
    ended    BIGINT,
    reply    TEXT    COLLATE "C", -- JSON, once the turn is done or failed
    PRIMARY KEY (number, idx)
) PARTITION BY HASH (number);
-- Other turn ids are unique because their index is.
CREATE INDEX odd_turns ON turns (number) WHERE odd;

CREATE TABLE events (
    number   BIGINT NOT NULL, -- of the execution
    position BIGINT NOT NULL, -- dense from 0
    at       BIGINT,
    type     TEXT   COLLATE "C" NOT NULL,
    run      TEXT   COLLATE "C" NOT NULL,
    turn     TEXT   COLLATE "C" NOT NULL,
    cause    TEXT   COLLATE "C" NOT NULL,
    data     BYTEA,
    PRIMARY KEY (number, position)
) PARTITION BY HASH (number);

-- Events that wait for their position (R20).
CREATE TABLE held_events (
    number  BIGINT NOT NULL, -- of the execution
    hold    BIGINT NOT NULL, -- their order among each other, then their arrival
    arrival BIGINT NOT NULL,
    at      BIGINT,
    type    TEXT   COLLATE "C" NOT NULL,
    run     TEXT   COLLATE "C" NOT NULL,
    turn    TEXT   COLLATE "C" NOT NULL,
    cause   TEXT   COLLATE "C" NOT NULL,
    data    BYTEA,
    PRIMARY KEY (number, hold, arrival)
);

-- Credentials of runs that are not over, sealed under a key that is not kept
-- here (R18). A row goes when its run ends or is stopped.
CREATE TABLE sealed_credentials (
    execution TEXT  COLLATE "C" PRIMARY KEY,
    sealed    BYTEA NOT NULL
);

-- Keys are stored as their hash (G4).
CREATE TABLE api_keys (
    number      BIGINT  GENERATED ALWAYS AS IDENTITY,
    hash        BYTEA   PRIMARY KEY,
    handle      TEXT    COLLATE "C" NOT NULL,
    principal   TEXT    COLLATE "C" NOT NULL,
    role        TEXT    COLLATE "C" NOT NULL,
    inter_agent BOOLEAN NOT NULL,
    created     BIGINT,
    revoked     BIGINT,
    grants      TEXT    COLLATE "C" -- JSON, NULL: none
);

CREATE TABLE meta (
    name  TEXT  COLLATE "C" PRIMARY KEY,
    value BYTEA NOT NULL
);

-- Processes that use this store, by the name that leases and calls carry. One
-- whose row has expired by this server's clock is dead (G24).
CREATE TABLE owners (
    owner   TEXT   COLLATE "C" PRIMARY KEY,
    expires BIGINT NOT NULL
);

-- A row for each who commits, with the number of the last transaction: how the
-- outcome of a COMMIT is found whose answer never came.
CREATE TABLE seats (
    id     TEXT   COLLATE "C" PRIMARY KEY,
    number BIGINT NOT NULL DEFAULT 0,
    fence  BIGINT NOT NULL DEFAULT 0, -- raised by who asks for the outcome
    made   TIMESTAMPTZ NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- +goose StatementBegin
DO $$
DECLARE t TEXT;
BEGIN
    FOREACH t IN ARRAY ARRAY['calls', 'frames', 'replies', 'entries', 'turns', 'events'] LOOP
        FOR i IN 0..7 LOOP
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES WITH (MODULUS 8, REMAINDER %s)', t || '_' || i, t, i);
        END LOOP;
    END LOOP;
END $$;
-- +goose StatementEnd
