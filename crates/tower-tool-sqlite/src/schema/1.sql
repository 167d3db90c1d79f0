-- Names are bytes: nothing folds or cuts them. What is great stands last, so that the rest is read without it.
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    tenant BLOB NOT NULL,
    actor BLOB NOT NULL,
    scope BLOB NOT NULL,
    tool BLOB NOT NULL,
    digest BLOB NOT NULL,
    revision INTEGER NOT NULL,
    -- NULL as long as somebody has to settle it.
    forget_at INTEGER,
    card TEXT,
    card_at INTEGER,
    is_pending INTEGER NOT NULL,
    -- NULL where there is no result, or not any more.
    body_bytes INTEGER,
    -- JSON, without the result.
    record BLOB NOT NULL,
    -- The result, apart, so that it can go by itself.
    body BLOB,
    UNIQUE (tenant, actor, scope, tool, digest)
) STRICT;
CREATE INDEX records_to_forget ON records (forget_at) WHERE forget_at IS NOT NULL;
CREATE INDEX records_pending ON records (tenant, card_at, card) WHERE is_pending = 1;

-- The order in which results came.
CREATE TABLE bodies (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    record INTEGER NOT NULL UNIQUE,
    tenant BLOB NOT NULL,
    actor BLOB NOT NULL,
    scope BLOB NOT NULL
) STRICT;
CREATE INDEX bodies_of_session ON bodies (tenant, actor, scope, seq);

-- The results of each session that has any.
CREATE TABLE sessions (
    tenant BLOB NOT NULL,
    actor BLOB NOT NULL,
    scope BLOB NOT NULL,
    bodies INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (tenant, actor, scope)
) STRICT, WITHOUT ROWID;

CREATE TABLE totals (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    records INTEGER NOT NULL,
    bodies INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    buckets INTEGER NOT NULL
) STRICT;
INSERT INTO totals VALUES (1, 0, 0, 0, 0);

-- By approval and by execution: whose an id is.
CREATE TABLE ids (id TEXT PRIMARY KEY, record INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX ids_of_record ON ids (record);

-- Grows with every change of a record that has a card.
CREATE TABLE cards (tenant BLOB PRIMARY KEY, version INTEGER NOT NULL) STRICT, WITHOUT ROWID;

-- In nanoseconds since 1970.
CREATE TABLE buckets (
    tenant BLOB NOT NULL,
    digest BLOB NOT NULL,
    full_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX buckets_full ON buckets (full_at);

-- Which start of the machine it was last, when that was in store time, and the latest store time that was seen, both in
-- milliseconds since 1970; and how often records were changed, by all processes together.
CREATE TABLE clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    start BLOB NOT NULL,
    started_at INTEGER NOT NULL,
    latest INTEGER NOT NULL,
    changes INTEGER NOT NULL
) STRICT;
INSERT INTO clock VALUES (1, x'', 0, 0, 0);
