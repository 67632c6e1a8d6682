-- SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
-- One row per out of memory (or recovered retry), written when it happens. document holds the members of
-- `npumem oom show` as JSON text; the columns are what lists and filters need.
CREATE TABLE oom (
    id INTEGER PRIMARY KEY,
    wall_ns INTEGER NOT NULL,
    tgid INTEGER NOT NULL,
    rank INTEGER,                       -- NULL: not known
    device INTEGER,                     -- NULL: not known
    comm TEXT NOT NULL,
    verdict TEXT NOT NULL,
    recovered INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    requested_bytes INTEGER,            -- NULL: not known
    reason TEXT NOT NULL,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX oom_time ON oom (wall_ns);
