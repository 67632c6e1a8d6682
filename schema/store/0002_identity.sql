-- SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
-- What an answer about an earlier moment needs: where a process stood among its ranks, which devices it
-- saw, and whether an owner was inferred. Marks are rows of event of kind 'mark', detail is the name.
ALTER TABLE process ADD COLUMN rank_inferred INTEGER NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN replica INTEGER;             -- NULL: none, or not known
ALTER TABLE process ADD COLUMN server_rank INTEGER;
ALTER TABLE process ADD COLUMN server_size INTEGER;
ALTER TABLE process ADD COLUMN parent_tgid INTEGER NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN uid INTEGER;                 -- NULL: not known
ALTER TABLE process ADD COLUMN user TEXT NOT NULL DEFAULT '';
ALTER TABLE process ADD COLUMN pod_uid TEXT NOT NULL DEFAULT '';
ALTER TABLE process ADD COLUMN visible_devices TEXT NOT NULL DEFAULT ''; -- user device i -> driver's id, "2,3"
ALTER TABLE sample ADD COLUMN inferred INTEGER NOT NULL DEFAULT 0;
CREATE INDEX event_mark ON event (detail) WHERE kind = 'mark';
