/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_phase.c - phases of events to owner numbers.
 *
 * An owner is made when an event or a sum first has its phase; views only look it up.
 */
#include "ledger_internal.h"

uint32_t owner_of_phase(struct ledger *l, uint32_t phase)
{
    uint32_t class_id = NM_PHASE_CLASS(phase), detail = NM_PHASE_DETAIL(phase);
    char name[PHASE_OWNER_MAX];
    if (!class_id || !l->config.phases || class_id > PHASE_CLASSES_MAX ||
        detail > PHASE_DETAILS_MAX)
        return OWNER_UNKNOWN;
    uint16_t *known = &l->phase_owners[class_id][detail];
    if (!*known) {
        phase_owner(l->config.phases, phase, name);
        if (name[0])
            *known = (uint16_t)owner_intern(l, name, OWNER_UNKNOWN);
    }
    return *known;
}

uint32_t owner_of_phase_known(const struct ledger *l, uint32_t phase)
{
    uint32_t class_id = NM_PHASE_CLASS(phase), detail = NM_PHASE_DETAIL(phase);
    if (class_id > PHASE_CLASSES_MAX || detail > PHASE_DETAILS_MAX)
        return OWNER_UNKNOWN;
    return class_id ? l->phase_owners[class_id][detail] : OWNER_UNKNOWN;
}

bool owner_is_phase(const struct ledger *l, uint32_t owner, const char *word)
{
    if (owner < OWNER_ID_COUNT)
        return false;
    for (uint32_t class_id = 1; class_id <= PHASE_CLASSES_MAX; class_id++) {
        if (word && !phase_class_is(l->config.phases, class_id, word))
            continue;
        for (uint32_t detail = 0; detail <= PHASE_DETAILS_MAX; detail++)
            if (l->phase_owners[class_id][detail] == owner)
                return true;
    }
    return false;
}
