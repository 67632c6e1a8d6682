/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_label.c - the user's names for what is allocated from a moment on, of a process or of all.
 *
 * Owns: when a label holds. What it does to an owner is in ledger_named.c.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

int ledger_label_begin(struct ledger *l, uint32_t tgid, const char *owner, uint64_t time_ns)
{
    struct process *p = tgid ? process_find(l, tgid) : NULL;
    if (tgid && (!p || !p->pub.alive))
        return -ESRCH;
    struct label label = {.owner = owner_find(l, owner), .begin_ns = time_ns};
    if (label.owner == OWNER_ID_UNKNOWN)
        return -ENOSPC;
    *(p ? &p->label : &l->label) = label;
    return 0;
}

bool ledger_label_end(struct ledger *l, uint32_t tgid, const char *owner)
{
    struct process *p = tgid ? process_find(l, tgid) : NULL;
    struct label *label = p ? &p->label : &l->label;
    if ((tgid && !p) || !label->owner || strcmp(ledger_owner_name(l, label->owner), owner) != 0)
        return false;
    *label = (struct label){};
    return true;
}

const char *ledger_label_of(const struct ledger *l, uint32_t tgid)
{
    const struct process *p = process_find(l, tgid);
    return p && p->label.owner ? ledger_owner_name(l, p->label.owner) : NULL;
}

int ledger_each_label(const struct ledger *l,
                      int (*fn)(void *, uint32_t tgid, uint32_t owner, uint64_t begin_ns),
                      void *userdata)
{
    int r = l->label.owner ? fn(userdata, 0, l->label.owner, l->label.begin_ns) : 0;
    for (uint32_t i = 0; i < l->process_count && r == 0; i++) {
        const struct process *p = l->processes[i];
        if (p->label.owner && p->pub.alive)
            r = fn(userdata, p->pub.facts.tgid, p->label.owner, p->label.begin_ns);
    }
    return r;
}
