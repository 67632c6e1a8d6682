-- SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
-- What was highest in each phase of a process (profile run, loading, capture ...), and its own questions to the
-- driver in it: a daemon that comes later cannot see it again. All rows of a process are written together, when
-- one of them changed since the last sample. phase: its owner's name, '' for questions in no phase. Times are
-- boot_ns, 0: no such question. held_bytes, held_physical_bytes: the most that the owner had at the levels
-- allocated and physical, NULL nothing.
CREATE TABLE phase (
    process_id INTEGER NOT NULL REFERENCES process (id) ON DELETE CASCADE,
    device INTEGER NOT NULL,
    phase TEXT NOT NULL,
    first_ns INTEGER NOT NULL,
    last_ns INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    start_allocated_bytes INTEGER NOT NULL,
    peak_allocated_bytes INTEGER NOT NULL,
    peak_reserved_bytes INTEGER NOT NULL,
    peak_physical_bytes INTEGER NOT NULL,
    held_bytes INTEGER,
    held_physical_bytes INTEGER,
    first_question_ns INTEGER NOT NULL,
    first_free_bytes INTEGER NOT NULL,
    first_total_bytes INTEGER NOT NULL,
    first_physical_bytes INTEGER NOT NULL,
    first_reserved_bytes INTEGER NOT NULL,
    first_allocated_bytes INTEGER NOT NULL,
    last_question_ns INTEGER NOT NULL,
    last_free_bytes INTEGER NOT NULL,
    last_total_bytes INTEGER NOT NULL,
    last_physical_bytes INTEGER NOT NULL,
    last_reserved_bytes INTEGER NOT NULL,
    last_allocated_bytes INTEGER NOT NULL,
    PRIMARY KEY (process_id, device, phase)
) STRICT;
