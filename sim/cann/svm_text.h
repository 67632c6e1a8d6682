/* SPDX-License-Identifier: Apache-2.0 */
/*
 * svm_text.h - the driver's text about memory: $NPUSIM_DIR/proc/svm/task/<pid>/summary (one
 * process) and $NPUSIM_DIR/proc/svm/dev<logical id>/summary (all processes of a card).
 *
 * A real driver prints on read; here the text is a file that each call updates in place, exact
 * whenever the process is at rest. Both files are made of 4096-byte blocks of 32 lines of 128
 * bytes, one block per process and card:
 *   hostpid=N devpid=N devid=N   (of a process) or Hostpid=N (of a card)
 *   used_page_4K: N  used_page_2M: N  used_page_1G: N
 *   peak_page_4K: N  peak_page_2M: N  peak_page_1G: N
 *   Devid Mem_type Module_name Module_id Current_alloced_size Alloced_peak_size Alloc_cnt Free_cnt
 *   one row per page size and module, sizes in bytes: dev0 MEM_DEV_HUGE_HBM APP 33 ...
 * Mem_type is MEM_DEV_SMALL_HBM (4 KiB pages) or MEM_DEV_HUGE_HBM. Unused lines are blank. Host
 * memory is not listed. A page's file of a process is removed when it ends, or by the next process
 * that starts. In a pid namespace, N is the pid in that namespace. NPUSIM_SVM=0: no text, as on a
 * driver that has none.
 */
#ifndef SIM_SVM_TEXT_H
#define SIM_SVM_TEXT_H

#include "book.h"

/* Makes the text of this process; without it (NPUSIM_SVM=0, no space) the other calls do nothing.
 */
void svm_text_open(int slot, int pid);
/* Rewrites a row and its card's page counts; about 0.2 us. */
void svm_text_update(const struct book_slot *slot, uint32_t row);
/* Removes the text of the slot's process, this one or a dead one. */
void svm_text_remove(int slot, int pid);
/* Forgets the text without touching it (the child of a fork does not own its parent's). */
void svm_text_forget(void);

#endif
