-- What the resource keeps beside its ledger. Running this again changes nothing.

CREATE TABLE IF NOT EXISTS accepted_write (
    id           integer PRIMARY KEY AUTOINCREMENT,
    resource     text   NOT NULL,
    kind         text   NOT NULL,
    term         integer NOT NULL,
    instance     text   NOT NULL,
    seq          integer,          -- the last of its numbers; null if it has none
    numbers      integer NOT NULL, -- how many
    at_ms        integer NOT NULL,
    highest_term integer NOT NULL  -- accepted for this resource before
);
CREATE INDEX IF NOT EXISTS accepted_write_term ON accepted_write (resource, term);
CREATE INDEX IF NOT EXISTS accepted_write_seq ON accepted_write (resource, seq);

CREATE TABLE IF NOT EXISTS tick (
    write_id         integer PRIMARY KEY,
    resource         text   NOT NULL,
    scheduled_for_ms integer NOT NULL,
    note             text   NOT NULL
);

CREATE TABLE IF NOT EXISTS checkpoint (
    resource text   PRIMARY KEY,
    term     integer NOT NULL,
    instance text   NOT NULL,
    seq      integer,
    data     text   NOT NULL,
    at_ms    integer NOT NULL
);

-- Which work the checkpoints are for.
CREATE TABLE IF NOT EXISTS covered (
    write_id   integer PRIMARY KEY,
    resource   text   NOT NULL,
    first_unit integer NOT NULL,
    last_unit  integer NOT NULL
);
