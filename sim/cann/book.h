/* SPDX-License-Identifier: Apache-2.0 */
/*
 * book.h - who holds how much of which simulated card, shared by all processes of a node.
 *
 * One mapped file $NPUSIM_DIR/book (default directory: /dev/shm/npusim-<uid>), one slot per
 * process. A slot is owned by the process that holds a POSIX lock on byte <slot> of
 * $NPUSIM_DIR/alive: the kernel drops it however the process ends, in any pid namespace, so whoever
 * gets the lock knows that the owner is gone and gives its memory back.
 *
 * Two figures per allocation, on purpose:
 *   current_bytes (rows)  the size argument of the driver call, as the driver's own table has it
 *   mapped_bytes (slots)  that size rounded up to the page (4 KiB, 2 MiB, 1 GiB): what the card
 *                         is short of, what aclrtGetMemInfo and DCMI show, what out of memory means
 * Memory of the host (pinned, mbuf, registered) is in neither.
 *
 * NPUSIM_DEVICES (8), NPUSIM_HBM (64G per card; suffixes K, M, G) and NPUSIM_BASELINE (0: bytes of
 * each card that are never free) are fixed by the first process; a later process that sets one
 * explicitly changes it if no other process lives.
 */
#ifndef SIM_BOOK_H
#define SIM_BOOK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BOOK_DEVICES_MAX = 16,
    BOOK_SLOTS_MAX = 512,
    BOOK_ROWS_MAX = 96,
};

enum book_page { BOOK_PAGE_4K, BOOK_PAGE_2M, BOOK_PAGE_1G, BOOK_PAGES };

struct book_row {
    uint8_t device; /* driver's logical id */
    uint8_t page;   /* enum book_page */
    uint8_t module;
    uint8_t line; /* position in the device's text block */
    uint32_t reserved;
    uint64_t current_bytes;
    uint64_t peak_bytes;
    uint64_t alloc_count;
    uint64_t free_count;
};

struct book_slot {
    int32_t pid; /* as the owner sees itself; 0: unused */
    uint32_t row_count;
    uint64_t token; /* of the owner: pid and start time, the same in every pid namespace's view */
    uint64_t mapped_bytes[BOOK_DEVICES_MAX];
    uint64_t pages[BOOK_DEVICES_MAX][BOOK_PAGES];
    uint64_t pages_peak[BOOK_DEVICES_MAX][BOOK_PAGES];
    struct book_row rows[BOOK_ROWS_MAX];
};

struct book_device {
    pthread_mutex_t lock; /* robust; used_bytes is the sum of the slots' mapped_bytes */
    uint64_t used_bytes;
};

struct book {
    uint32_t magic;
    uint32_t version;
    uint32_t device_count;
    uint32_t slot_high; /* slots ever used: the end of every walk */
    uint64_t hbm_bytes;
    uint64_t baseline_bytes;
    struct book_device devices[BOOK_DEVICES_MAX];
    struct book_slot slots[BOOK_SLOTS_MAX];
};

/* Path of a file below $NPUSIM_DIR; cut off at size like snprintf. */
void book_path(char *path, size_t size, const char *name);
/* Maps the node's book, making it if needed; NULL with a message on stderr when that fails. */
struct book *book_open(void);
/* Takes a free slot for this process after reaping dead ones; its index, or -errno. */
int book_slot_acquire(struct book *book);
/* Gives back all that the slot holds and frees it. */
void book_slot_release(struct book *book, int slot);
/* Gives back what dead processes hold; own is this process's slot or -1. Returns how many died. */
int book_reap(struct book *book, int own);
/* Charges page-rounded bytes of a card to a slot; -ENOMEM when the card has not that much. */
int book_charge(struct book *book, int slot, int device, uint64_t mapped_bytes);
void book_uncharge(struct book *book, int slot, int device, uint64_t mapped_bytes);
/* Index of the slot's row, made on first use; -ENOSPC when the slot has no row left. */
int book_row_index(struct book *book, int slot, int device, enum book_page page, int module);
/* Pid of the slot's owner in this process's pid namespace, or 0 when it is dead. */
int book_slot_pid(struct book *book, int slot);
/* Bytes of a card in use: the baseline and all slots. */
uint64_t book_used_bytes(struct book *book, int device);
/* Size of one page in bytes. */
uint64_t book_page_bytes(enum book_page page);
/* "16", "64M", "4G" -> bytes; the fallback if text is NULL or not a size. */
uint64_t book_parse_bytes(const char *text, uint64_t fallback);

#endif
