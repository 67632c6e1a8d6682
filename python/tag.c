/* SPDX-License-Identifier: Apache-2.0 */
/* tag.c - libnpumem_tag.so: the probe points of npumem/tag.h for shared objects and for Python. */
#include "npumem/tag.h"
