-- SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
-- How much of an owner was found by reading the process's own allocator, not by events.
ALTER TABLE sample ADD COLUMN read_bytes INTEGER; -- NULL: not known
