/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp_risk.h - whether a return probe would kill a process under seccomp.
 *
 * From Linux 6.11 on, on x86_64, a function with a return probe comes back through a system call of
 * the kernel's own, uretprobe (335). Until 6.12.14, 6.13.3 and 6.14 a filter that does not know it,
 * such as Docker's and Kubernetes' default, refused it, and the process died in the observed
 * function. Distributions carry the correction in other versions: so it is tried, in a child.
 */
#ifndef NPUMEM_DAEMON_SECCOMP_RISK_H
#define NPUMEM_DAEMON_SECCOMP_RISK_H

#include <stdbool.h>

#define SECCOMP_URETPROBE 335u /* arch/x86/entry/syscalls/syscall_64.tbl */

/*
 * Runs a function with a return probe in a child whose filter refuses the system call `denied`.
 * *ret_survives: it returned what it should. Returns 0, or -errno where no probe can be made. For a
 * process without other threads. Cost: some 80 ms; a child that hangs is given 2 s.
 */
int return_probe_try(unsigned denied, bool *ret_survives);

#endif
