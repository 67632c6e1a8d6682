/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slack.c - see slack.h.
 *
 * Must not: count what rounding leaves, or what a granule would share with a block.
 */
#include "slack.h"

#define MIB ((uint64_t)1 << 20)
/* What segments and blocks that events named may lack of the allocator's own totals. */
#define COMPLETE_PERCENT 1

const uint32_t slack_split_mb[SLACK_SPLITS] = {128, 64, 32};

void slack_init(struct slack *ret)
{
    ret->pinned_free_bytes = ret->unmap_bytes = ret->empty_bytes = ANALYSIS_UNKNOWN;
    for (size_t i = 0; i < SLACK_SPLITS; i++)
        ret->split_bytes[i] = ANALYSIS_UNKNOWN;
}

struct unmap {
    uint64_t granule_bytes, bytes;
};

/* However a hole lies, all of its granules but two are wholly in it; all but one where it is a
 * multiple of them. */
static int on_piece(void *userdata, const struct layout_piece *piece)
{
    struct unmap *u = userdata;
    uint64_t granules = piece->is_hole ? piece->bytes / u->granule_bytes : 0;

    if (granules > 1)
        u->bytes += (granules - 1) * u->granule_bytes;
    return 0;
}

static void add_segment(const struct layout *l, const struct layout_segment *s,
                        uint64_t granule_bytes, struct slack *ret)
{
    uint64_t busy = s->used_bytes + s->pending_bytes;
    struct unmap unmap = {.granule_bytes = granule_bytes};

    if (s->is_small || busy >= s->bytes)
        return; /* small: its blocks may be summed, what is free in it is not known */
    if (!busy) {
        ret->empty_bytes += s->bytes;
        return;
    }
    ret->pinned_free_bytes += s->bytes - busy;
    layout_each_piece(l, s, on_piece, &unmap);
    ret->unmap_bytes += unmap.bytes;
    for (size_t i = 0; i < SLACK_SPLITS; i++)
        if (s->bytes >= slack_split_mb[i] * MIB)
            ret->split_bytes[i] += s->bytes - busy;
}

bool slack_measure(const struct layout *l, const struct alloc_conf *conf, uint64_t reserved_bytes,
                   uint64_t allocated_bytes, struct slack *ret)
{
    uint64_t segments = 0, used = 0;

    slack_init(ret);
    for (size_t i = 0; i < l->segment_count; i++) {
        segments += l->segments[i].bytes;
        used += l->segments[i].used_bytes + l->segments[i].pending_bytes;
    }
    if (l->unplaced_blocks || l->overlaps || reserved_bytes == ANALYSIS_UNKNOWN ||
        segments + reserved_bytes / 100 * COMPLETE_PERCENT < reserved_bytes ||
        used + allocated_bytes / 100 * COMPLETE_PERCENT < allocated_bytes)
        return false;
    *ret = (struct slack){0};
    for (size_t i = 0; i < l->segment_count; i++)
        add_segment(l, &l->segments[i], alloc_conf_granule(conf), ret);
    return true;
}

uint32_t slack_split(const struct slack *s, uint64_t at_least_bytes)
{
    for (size_t i = 0; i < SLACK_SPLITS; i++)
        if (s->split_bytes[i] >= at_least_bytes)
            return slack_split_mb[i];
    return 0;
}
