-- SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
-- How full a server's KV cache was: one row per stretch of time of the process that has the scheduler, read at
-- store.kv_interval. It ends when the fill has moved by more than 1 % of the pool (and it has lasted
-- store.sample_interval), after ten minutes, and where reading did. Blocks: without the null block; used ones.
-- running, waiting: requests at the fullest, NULL not known. block_tokens, model_len 0: not told. full_ns: how
-- much of it the pool was at 90 % or more. fills: readings by fill in percent, rounded up, "0:7 49:2".
CREATE TABLE sample_kv (
    wall_ns INTEGER NOT NULL,
    end_wall_ns INTEGER NOT NULL,
    process_id INTEGER NOT NULL REFERENCES process (id) ON DELETE CASCADE,
    readings INTEGER NOT NULL,
    usable_blocks INTEGER NOT NULL,
    block_tokens INTEGER NOT NULL,
    model_len INTEGER NOT NULL,
    least_blocks INTEGER NOT NULL,
    most_blocks INTEGER NOT NULL,
    last_blocks INTEGER NOT NULL,
    most_wall_ns INTEGER NOT NULL,
    running INTEGER,
    waiting INTEGER,
    full_ns INTEGER NOT NULL,
    fills TEXT NOT NULL,
    PRIMARY KEY (process_id, wall_ns)
) STRICT;
CREATE INDEX sample_kv_time ON sample_kv (wall_ns);
