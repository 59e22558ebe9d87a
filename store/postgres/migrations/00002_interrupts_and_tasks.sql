-- +goose Up
-- What runs wait for (R22). A row is written with the halt of its run, and
-- resolved once, under the lock of its root's row in executions. policy and
-- resume are for the backend that asked, and hold secrets of its own; ask holds
-- none.
CREATE TABLE interrupts (
    number     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- about in the order in which they were raised
    id         TEXT COLLATE "C" NOT NULL UNIQUE,
    run        TEXT COLLATE "C" NOT NULL,
    execution  TEXT COLLATE "C" NOT NULL, -- whose participant asks
    root       TEXT COLLATE "C" NOT NULL, -- that goes on when it is resolved
    turn       TEXT COLLATE "C" NOT NULL,
    payer      TEXT COLLATE "C" NOT NULL,
    path       TEXT COLLATE "C" NOT NULL, -- JSON array
    ask        TEXT COLLATE "C" NOT NULL, -- JSON
    policy     BYTEA,
    resume     BYTEA,
    raised     BIGINT,
    expires    BIGINT,
    decision   TEXT COLLATE "C" NOT NULL DEFAULT '', -- '': it waits
    text       TEXT COLLATE "C" NOT NULL DEFAULT '',
    resolution BYTEA, -- of the policy part
    decided_by TEXT COLLATE "C" NOT NULL DEFAULT '',
    decided    BIGINT
);
CREATE INDEX interrupts_by_run ON interrupts (run, number);
CREATE INDEX interrupts_waiting ON interrupts (number) WHERE decision = '';
CREATE INDEX interrupts_by_expiry ON interrupts (expires) WHERE decision = '';

-- Where the tasks of A2A agents are, and whose (A12). A row goes when its task
-- was not seen for a week.
CREATE TABLE remote_tasks (
    agent    TEXT   COLLATE "C" NOT NULL,
    id       TEXT   COLLATE "C" NOT NULL,
    upstream TEXT   COLLATE "C" NOT NULL,
    payer    TEXT   COLLATE "C" NOT NULL,
    context  TEXT   COLLATE "C" NOT NULL,
    seen     BIGINT NOT NULL,
    PRIMARY KEY (agent, id)
);
CREATE INDEX remote_tasks_by_context ON remote_tasks (agent, payer, context, seen);
CREATE INDEX remote_tasks_by_age ON remote_tasks (seen);

-- Tasks of the face of A2A (A25). work is there until the task is over.
CREATE TABLE a2a_tasks (
    id        TEXT   COLLATE "C" PRIMARY KEY,
    agent     TEXT   COLLATE "C" NOT NULL,
    principal TEXT   COLLATE "C" NOT NULL,
    payer     TEXT   COLLATE "C" NOT NULL,
    context   TEXT   COLLATE "C" NOT NULL,
    state     TEXT   COLLATE "C" NOT NULL,
    version   BIGINT NOT NULL,
    owner     TEXT   COLLATE "C" NOT NULL,
    created   BIGINT NOT NULL,
    updated   BIGINT NOT NULL,
    shown     BYTEA  NOT NULL,
    work      BYTEA,
    sealed    BYTEA
);
CREATE INDEX a2a_tasks_by_principal ON a2a_tasks (principal, agent, updated, id);
CREATE INDEX a2a_tasks_owned ON a2a_tasks (owner) WHERE owner <> '';
CREATE INDEX a2a_tasks_over ON a2a_tasks (updated) WHERE work IS NULL;

-- The messages that tasks were made of (A19), for 24 hours.
CREATE TABLE a2a_messages (
    principal TEXT   COLLATE "C" NOT NULL,
    agent     TEXT   COLLATE "C" NOT NULL,
    message   TEXT   COLLATE "C" NOT NULL,
    digest    BYTEA  NOT NULL,
    task      TEXT   COLLATE "C" NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (principal, agent, message)
);
CREATE INDEX a2a_messages_by_age ON a2a_messages (at);

-- What the client of A2A knows of its conversations (A24).
CREATE TABLE a2a_sessions (
    key   BYTEA  PRIMARY KEY,
    state BYTEA  NOT NULL,
    at    BIGINT NOT NULL
);
CREATE INDEX a2a_sessions_by_age ON a2a_sessions (at);

-- Evidence of identity and signed hops count once, until they expire (C16, C22).
-- A digest is of issuer, id and audience.
CREATE TABLE used_proofs (
    digest  BYTEA  PRIMARY KEY,
    expires BIGINT NOT NULL
);
CREATE INDEX used_proofs_by_expiry ON used_proofs (expires);

-- The signed hops of calls: what was received and what was sent on (C16).
CREATE TABLE hop_tokens (
    id      BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run     TEXT    COLLATE "C" NOT NULL,
    request TEXT    COLLATE "C" NOT NULL, -- the request id of the call
    sent    BOOLEAN NOT NULL, -- to the agent; else received
    token   TEXT    COLLATE "C" NOT NULL,
    at      BIGINT  NOT NULL
);
CREATE INDEX hop_tokens_by_run ON hop_tokens (run, id);
