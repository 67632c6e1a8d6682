/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.h - arrays that grow at their end.
 */
#ifndef NPUMEM_ARRAY_H
#define NPUMEM_ARRAY_H

#include <errno.h>
#include <stdlib.h>

#define ARRAY_FIRST 16 /* items, at the first growth */

/*
 * Room for one more item behind `count` of them: doubles items and capacity, both lvalues, where
 * they are full. Evaluates to 0; -ENOMEM with the array as it was. Cost: O(1), amortised.
 */
#define ARRAY_ROOM(items, capacity, count)                                                         \
    ({                                                                                             \
        int room_ = 0;                                                                             \
        if ((count) == (capacity)) {                                                               \
            __typeof__(capacity) more_ = (capacity) ? 2 * (capacity) : ARRAY_FIRST;                \
            __typeof__(items) grown_ = reallocarray((items), more_, sizeof(*(items)));             \
            if (grown_) {                                                                          \
                (items) = grown_;                                                                  \
                (capacity) = more_;                                                                \
            } else {                                                                               \
                room_ = -ENOMEM;                                                                   \
            }                                                                                      \
        }                                                                                          \
        room_;                                                                                     \
    })

#endif
