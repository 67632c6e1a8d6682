/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcmi.c - libdcmi: what the device management interface says about the node's cards, read from
 * the book without taking a slot in it, so that asking never makes a process a user of a card.
 * Bytes are the page-rounded ones that the card is short of; MB is MiB.
 */
#include <string.h>

#include "book.h"
#include "call.h"
#include "sim_abi.h"

enum { DCMI_OK = 0, DCMI_PARAMETER = -8001, DCMI_NOT_INIT = -8012, PROCS_MAX = 64 };

static struct book *book;

static int dcmi_open(void)
{
    book = book_open();
    return book ? DCMI_OK : DCMI_NOT_INIT;
}

static int check(int card, int device)
{
    if (!book)
        return DCMI_NOT_INIT;
    return card >= 0 && card < (int)book->device_count && device == 0 ? DCMI_OK : DCMI_PARAMETER;
}

static int dcmi_cards(int *count, int *cards, int length)
{
    if (!book)
        return DCMI_NOT_INIT;
    if (!count || !cards || length < (int)book->device_count)
        return DCMI_PARAMETER;
    *count = (int)book->device_count;
    for (int i = 0; i < *count; i++)
        cards[i] = i;
    return DCMI_OK;
}

static int dcmi_put(int card, int device, int *place, int value)
{
    int r = check(card, device);

    if (!r && !place)
        r = DCMI_PARAMETER;
    if (!r)
        *place = value;
    return r;
}

static int dcmi_from_logic(int *card, int *device, unsigned int logic)
{
    int r = dcmi_put((int)logic, 0, card, (int)logic);

    return r ? r : dcmi_put((int)logic, 0, device, 0);
}

static int dcmi_hbm(int card, int device, struct sim_dcmi_hbm_info *info)
{
    int r = check(card, device);

    if (r || !info)
        return r ? r : DCMI_PARAMETER;
    book_reap(book, -1);
    *info = (struct sim_dcmi_hbm_info){
        .memory_mb = book->hbm_bytes >> 20,
        .freq = 1600,
        .used_mb = book_used_bytes(book, card) >> 20,
        .temperature = 40,
    };
    return DCMI_OK;
}

/* DDR of a card: these have none. */
static int dcmi_memory(int card, int device, struct sim_dcmi_memory_info *info)
{
    int r = check(card, device);

    if (r || !info)
        return r ? r : DCMI_PARAMETER;
    memset(info, 0, sizeof(*info));
    return DCMI_OK;
}

static int dcmi_procs(int card, int device, struct sim_dcmi_proc_mem *procs, int *count)
{
    int r = check(card, device);

    if (r || !procs || !count)
        return r ? r : DCMI_PARAMETER;
    *count = 0;
    for (int i = 0; i < (int)book->slot_high && *count < PROCS_MAX; i++) {
        uint64_t bytes = book->slots[i].mapped_bytes[card];
        int pid = bytes ? book_slot_pid(book, i) : 0;

        if (pid)
            procs[(*count)++] = (struct sim_dcmi_proc_mem){pid, bytes};
    }
    return DCMI_OK;
}

#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_FUNCTION(ret, sym, sym, out, size, params, args, body)
#include "dcmi.def"
