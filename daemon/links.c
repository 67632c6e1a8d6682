/* SPDX-License-Identifier: Apache-2.0 */
/* links.c - see links.h. */
#include "links.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "cleanup.h"

static void *close_one(void *fd)
{
    close((int)(intptr_t)fd);
    return NULL;
}

/* A thread that cannot be made costs time only. */
void links_close(const int *fds, size_t n)
{
    pthread_t threads[64];

    while (n) {
        size_t batch = n < ARRAY_SIZE(threads) ? n : ARRAY_SIZE(threads), started = 0;
        for (size_t i = 0; i < batch; i++) {
            void *fd = (void *)(intptr_t)fds[i];
            if (pthread_create(&threads[started], NULL, close_one, fd) == 0)
                started++;
            else
                close_one(fd);
        }
        while (started)
            pthread_join(threads[--started], NULL);
        fds += batch;
        n -= batch;
    }
}

struct late_close {
    int *fds;
    size_t count;
};

static void *close_late(void *userdata)
{
    struct late_close *c = userdata;

    links_close(c->fds, c->count);
    free(c->fds);
    free(c);
    return NULL;
}

void links_close_later(int *links, size_t count)
{
    struct late_close *c = malloc(sizeof(*c));
    pthread_attr_t attributes;
    pthread_t thread;
    int r = ENOMEM;

    if (c && count) {
        *c = (struct late_close){links, count};
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        r = pthread_create(&thread, &attributes, close_late, c);
        pthread_attr_destroy(&attributes);
    }
    if (r == 0)
        return;
    links_close(links, count);
    free(links);
    free(c);
}
