CREATE TABLE IF NOT EXISTS fenced_resource (
    name      TEXT    PRIMARY KEY,
    "group"   TEXT    NOT NULL,
    max_token INTEGER NOT NULL CHECK (max_token BETWEEN 1 AND 9007199254740991),
    instance  TEXT    NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS sequence (
    name        TEXT    PRIMARY KEY REFERENCES fenced_resource (name),
    last_seq    INTEGER NOT NULL CHECK (last_seq BETWEEN 0 AND 9007199254740991),
    owner_token INTEGER NOT NULL
) WITHOUT ROWID;
