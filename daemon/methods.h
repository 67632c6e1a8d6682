/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods.h - the handlers of methods.def, wherever they are; userdata is the manager.
 */
#ifndef NPUMEM_DAEMON_METHODS_H
#define NPUMEM_DAEMON_METHODS_H

#include "api.h"

#define METHOD(name, handler, flags) int handler(struct api_call *call, void *userdata);
#include "methods.def"
#undef METHOD

struct manager;
/* method_mark.c: a process ends, or runs another program: so does its label. */
void method_label_forget(struct manager *m, uint32_t tgid);

#endif
