-- SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
-- Host memory of each process beside its device memory (pinned memory is in sample, level host): what is
-- resident, and how much of that is of files and shared. Written when it changed by 1 MiB since the last
-- sample, and every ten minutes anyhow.
CREATE TABLE sample_host (
    wall_ns INTEGER NOT NULL,
    boot_ns INTEGER NOT NULL,
    process_id INTEGER NOT NULL REFERENCES process (id) ON DELETE CASCADE,
    resident_bytes INTEGER NOT NULL,
    shared_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX sample_host_time ON sample_host (wall_ns);
CREATE INDEX sample_host_process ON sample_host (process_id, wall_ns);
