-- +goose Up
-- What callers may call, over all replicas: buckets that fill as time goes by
-- (G8). A crash of the server empties the table, and every bucket is full again.
CREATE UNLOGGED TABLE rates (
    caller  TEXT             COLLATE "C" PRIMARY KEY,
    tokens  DOUBLE PRECISION NOT NULL,
    granted BIGINT           NOT NULL, -- to who asked last
    at      BIGINT           NOT NULL  -- when there were that many
) WITH (fillfactor = 50);

-- What a replica found out about others outside, for the rest of them to find out
-- by themselves: breakers that opened, URLs that are left out (R12, G13). What
-- was there before a crash is found out again.
CREATE UNLOGGED TABLE hints (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner  TEXT   COLLATE "C" NOT NULL, -- who found out
    kind   TEXT   COLLATE "C" NOT NULL,
    name   TEXT   COLLATE "C" NOT NULL,
    at     BIGINT NOT NULL
);

-- Which configuration each replica has in force, since when.
ALTER TABLE owners ADD COLUMN config TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE owners ADD COLUMN version TEXT COLLATE "C" NOT NULL DEFAULT '';
