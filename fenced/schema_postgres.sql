-- What the resource keeps beside its ledger. Running this again changes nothing.

CREATE TABLE IF NOT EXISTS accepted_write (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource     text   NOT NULL,
    kind         text   NOT NULL,
    term         bigint NOT NULL,
    instance     text   NOT NULL,
    seq          bigint,          -- the last of its numbers; null if it has none
    numbers      bigint NOT NULL, -- how many
    at_ms        bigint NOT NULL,
    highest_term bigint NOT NULL  -- accepted for this resource before
);
CREATE INDEX IF NOT EXISTS accepted_write_term ON accepted_write (resource, term);
CREATE INDEX IF NOT EXISTS accepted_write_seq ON accepted_write (resource, seq);

CREATE TABLE IF NOT EXISTS tick (
    write_id         bigint PRIMARY KEY,
    resource         text   NOT NULL,
    scheduled_for_ms bigint NOT NULL,
    note             text   NOT NULL
);

CREATE TABLE IF NOT EXISTS checkpoint (
    resource text   PRIMARY KEY,
    term     bigint NOT NULL,
    instance text   NOT NULL,
    seq      bigint,
    data     text   NOT NULL,
    at_ms    bigint NOT NULL
);

-- Which work the checkpoints are for.
CREATE TABLE IF NOT EXISTS covered (
    write_id   bigint PRIMARY KEY,
    resource   text   NOT NULL,
    first_unit bigint NOT NULL,
    last_unit  bigint NOT NULL
);
