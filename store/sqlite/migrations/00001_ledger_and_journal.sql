-- +goose Up
-- Times are microseconds since 1970 in UTC, money is millionths of a dollar,
-- digests are 32 bytes. No column holds a credential (P19, I8).

-- Who executes what, once (G20). Rows of state refused and passed executed
-- nothing; their key has a leading byte, so that it never meets that of a call.
CREATE TABLE calls (
    id            INTEGER PRIMARY KEY,
    key           BLOB    NOT NULL UNIQUE,
    state         TEXT    NOT NULL,
    attempts      INTEGER NOT NULL,
    payer         TEXT    NOT NULL,
    agent         TEXT    NOT NULL,
    run           TEXT    NOT NULL,
    path          TEXT    NOT NULL,
    parent        TEXT    NOT NULL,
    turn          TEXT    NOT NULL,
    turn_index    INTEGER NOT NULL, -- of the turn id within the run; -1: none
    request_id    TEXT    NOT NULL,
    caller        TEXT    NOT NULL,
    speaker       TEXT    NOT NULL,
    depth         INTEGER NOT NULL,
    digest        BLOB    NOT NULL,
    owner         TEXT    NOT NULL,
    stream        INTEGER NOT NULL,
    replays       INTEGER NOT NULL DEFAULT 0,
    repeats       INTEGER NOT NULL DEFAULT 0,
    status        INTEGER NOT NULL DEFAULT 0,
    code          TEXT    NOT NULL DEFAULT '',
    message       TEXT    NOT NULL DEFAULT '',
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    usage_cost    INTEGER NOT NULL DEFAULT 0,
    estimated     INTEGER NOT NULL DEFAULT 0,
    cost          INTEGER NOT NULL DEFAULT 0,
    unbilled      INTEGER NOT NULL DEFAULT 0,
    notes         TEXT, -- JSON array
    began         INTEGER,
    ended         INTEGER,
    opened        INTEGER, -- when the run was first seen, in the first row of its run
    kept          INTEGER NOT NULL DEFAULT 0, -- 1: the reply is below, and in frames
    head          TEXT, -- JSON object of the reply's header
    body          BLOB
) STRICT;
CREATE INDEX calls_by_run ON calls (run, payer, parent, turn_index);
CREATE INDEX calls_by_opening ON calls (opened, run) WHERE opened IS NOT NULL;

-- The bytes of a stream as they came, in the order of id (G21). They belong to
-- the call's current attempt.
CREATE TABLE frames (
    id      INTEGER PRIMARY KEY,
    call_id INTEGER NOT NULL,
    data    BLOB    NOT NULL
) STRICT;
CREATE INDEX frames_by_call ON frames (call_id);

-- Driver loops and their leases (R7, R17).
CREATE TABLE executions (
    number       INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    run          TEXT    NOT NULL,
    conversation TEXT    NOT NULL,
    definition   BLOB    NOT NULL,
    seed         TEXT    NOT NULL,
    payer        TEXT    NOT NULL,
    path         TEXT    NOT NULL,
    parent       TEXT    NOT NULL,
    depth        INTEGER NOT NULL,
    first        INTEGER NOT NULL,
    spec         BLOB,
    state        TEXT    NOT NULL,
    halt         TEXT, -- JSON, why it was stopped last, also once it runs again
    owner        TEXT    NOT NULL,
    epoch        INTEGER NOT NULL,
    expires      INTEGER,
    began        INTEGER,
    ended        INTEGER
) STRICT;
CREATE INDEX executions_by_run ON executions (run, began);
CREATE INDEX executions_by_beginning ON executions (began, run);

-- The journal: what was intended and what came of it (R14). Turns and events of
-- one execution stand side by side, so that a turn is one page to write and a
-- transcript is one stretch to read: their id is the number of the execution,
-- shifted left by 28 bits, plus the index or position.
CREATE TABLE turns (
    id       INTEGER PRIMARY KEY, -- number << 28 | index
    turn     TEXT    NOT NULL,
    odd      INTEGER NOT NULL, -- 1: the turn id does not name the index
    payer    TEXT    NOT NULL,
    agent    TEXT    NOT NULL,
    run      TEXT    NOT NULL,
    path     TEXT    NOT NULL,
    parent   TEXT    NOT NULL,
    speaker  TEXT    NOT NULL,
    digest   BLOB    NOT NULL,
    epoch    INTEGER NOT NULL,
    state    TEXT    NOT NULL,
    cost     INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    error    TEXT, -- JSON
    began    INTEGER,
    ended    INTEGER,
    reply    TEXT -- JSON, once the turn is done or failed
) STRICT;
-- Other turn ids are unique because their index is.
CREATE INDEX odd_turns ON turns (id >> 28) WHERE odd = 1;

CREATE TABLE events (
    id    INTEGER PRIMARY KEY, -- number << 28 | position
    at    INTEGER,
    type  TEXT NOT NULL,
    run   TEXT NOT NULL,
    turn  TEXT NOT NULL,
    cause TEXT NOT NULL,
    data  BLOB
) STRICT;

-- Keys are stored as their hash (G4).
CREATE TABLE api_keys (
    hash        BLOB    PRIMARY KEY,
    handle      TEXT    NOT NULL,
    principal   TEXT    NOT NULL,
    role        TEXT    NOT NULL,
    inter_agent INTEGER NOT NULL,
    created     INTEGER,
    revoked     INTEGER
) STRICT;

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

PRAGMA application_id = 0x61676273; -- "agbs"
PRAGMA user_version = 1;
