-- SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
-- What npumemd keeps on disk. docs/FORMATS.md explains it to readers.
-- Times: *_wall_ns is CLOCK_REALTIME, *_boot_ns is CLOCK_BOOTTIME of the boot the process ran in.
-- 64-bit addresses are stored as the same 64 bits in SQLite's signed integer.

CREATE TABLE process (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    boot_id TEXT NOT NULL,
    tgid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,       -- field 22 of /proc/PID/stat, modulo 2^32; 0 not known
    start_wall_ns INTEGER NOT NULL,     -- 0 not known
    first_wall_ns INTEGER NOT NULL,     -- when npumemd first wrote it
    last_wall_ns INTEGER NOT NULL,      -- when npumemd last knew it to be alive
    exit_wall_ns INTEGER,               -- NULL: alive at last_wall_ns
    exit_boot_ns INTEGER,
    exit_seen INTEGER NOT NULL DEFAULT 0, -- 1: the exit was observed; 0: found out afterwards
    comm TEXT NOT NULL,
    title TEXT NOT NULL,
    container TEXT NOT NULL,            -- empty: on the host
    rank INTEGER,
    world_size INTEGER,
    rank_source TEXT NOT NULL,
    UNIQUE (boot_id, tgid, start_ticks)
) STRICT;
CREATE INDEX process_exit ON process (exit_wall_ns);

CREATE TABLE owner (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- Live memory of each process: at its last checkpoint while it lives, and exactly what it held when it
-- ended once exit_wall_ns is set.
CREATE TABLE live_block (
    process_id INTEGER NOT NULL REFERENCES process (id) ON DELETE CASCADE,
    level TEXT NOT NULL,                -- physical (a segment), host, allocated (a block), pending (a block that
                                        -- waits for a stream), reserved_va, pool_sub
    device INTEGER NOT NULL,
    address INTEGER NOT NULL,
    handle INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    requested_bytes INTEGER NOT NULL,   -- 0 not known
    allocated_boot_ns INTEGER NOT NULL,
    owner_id INTEGER NOT NULL REFERENCES owner (id),
    stream INTEGER NOT NULL,
    caller INTEGER NOT NULL,
    api INTEGER NOT NULL                -- row of probes.def
) STRICT;
CREATE INDEX live_block_process ON live_block (process_id);

-- One row per (process, device, level, owner), written when something of the process changed since its
-- last sample and at least every ten minutes.
CREATE TABLE sample (
    wall_ns INTEGER NOT NULL,
    boot_ns INTEGER NOT NULL,
    process_id INTEGER NOT NULL REFERENCES process (id) ON DELETE CASCADE,
    device INTEGER NOT NULL,
    level TEXT NOT NULL,
    owner_id INTEGER NOT NULL REFERENCES owner (id),
    bytes INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    peak_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX sample_time ON sample (wall_ns);
CREATE INDEX sample_process ON sample (process_id, wall_ns);

-- The physical level of one process on one device, with what it held before attach.
CREATE TABLE sample_device (
    wall_ns INTEGER NOT NULL,
    boot_ns INTEGER NOT NULL,
    process_id INTEGER NOT NULL REFERENCES process (id) ON DELETE CASCADE,
    device INTEGER NOT NULL,
    physical_bytes INTEGER NOT NULL,
    before_attach_bytes INTEGER NOT NULL,
    driver_bytes INTEGER,               -- NULL: the driver has no figure
    peak_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX sample_device_time ON sample_device (wall_ns);
CREATE INDEX sample_device_process ON sample_device (process_id, wall_ns);

-- torch_npu's own totals of one pool.
CREATE TABLE sample_pool (
    wall_ns INTEGER NOT NULL,
    boot_ns INTEGER NOT NULL,
    process_id INTEGER NOT NULL REFERENCES process (id) ON DELETE CASCADE,
    device INTEGER NOT NULL,            -- as torch counts it
    component TEXT NOT NULL,            -- caching, workspace
    reserved_bytes INTEGER NOT NULL,
    allocated_bytes INTEGER NOT NULL,
    active_bytes INTEGER NOT NULL,
    before_attach_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX sample_pool_time ON sample_pool (wall_ns);
CREATE INDEX sample_pool_process ON sample_pool (process_id, wall_ns);

-- What is worth a look afterwards.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    wall_ns INTEGER NOT NULL,
    boot_ns INTEGER NOT NULL,
    kind TEXT NOT NULL,                 -- process, exit, failed_call, communicator, loss, gap
    process_id INTEGER REFERENCES process (id) ON DELETE SET NULL,
    tgid INTEGER NOT NULL,
    tid INTEGER NOT NULL,
    api INTEGER NOT NULL,
    result INTEGER NOT NULL,
    address INTEGER NOT NULL,
    requested_bytes INTEGER NOT NULL,
    handle INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX event_time ON event (wall_ns);
CREATE INDEX event_process ON event (process_id);
