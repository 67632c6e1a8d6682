/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobj_internal.h - offsets that all known versions of CPython share, for the pyobj_*.c files.
 * Source: schema/pyobj_layout.def says where they were measured.
 */
#ifndef NPUMEM_PYOBJ_INTERNAL_H
#define NPUMEM_PYOBJ_INTERNAL_H

#include "pyobj.h"

enum { KEYS_OLD, KEYS_LOG };
enum { INSTANCE_NONE, INSTANCE_BEFORE, INSTANCE_TAGGED, INSTANCE_INLINE };
enum { DIGITS_SIZE, DIGITS_TAG };

#define OBJECT_TYPE 8u
#define OBJECT_SIZE 16u /* of variable-size objects */
#define TYPE_BYTES 352u /* what is read of a type at once */
#define TYPE_NAME 24u
#define TYPE_BASICSIZE 32u
#define TYPE_FLAGS 168u
#define TYPE_DICTOFFSET 288u
#define TYPE_MRO 344u
#define ITEMS_INLINE 24u /* of a tuple */

#define FLAG_INLINE_VALUES (1ull << 2) /* 3.13 */
#define FLAG_MANAGED_DICT (1ull << 4)  /* 3.11 on */
#define FLAG_HEAPTYPE (1ull << 9)
#define FLAG_READY (1ull << 12)
#define FLAG_INT (1ull << 24)
#define FLAG_LIST (1ull << 25)
#define FLAG_TUPLE (1ull << 26)
#define FLAG_STR (1ull << 28)
#define FLAG_DICT (1ull << 29)
#define FLAG_TYPE (1ull << 31)

#endif
