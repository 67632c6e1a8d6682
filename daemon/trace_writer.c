/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_writer.c - see trace_writer.h.
 *
 * The event loop fills `piece` and appends it to the queue; the thread takes pieces from it and
 * writes. Shared, under the lock: the queue, waiting, is_ending, is_done, error. Everything else is
 * of one side alone; the header is the thread's once is_ending is set.
 */
#include "trace_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "trace_io.h"

struct piece {
    struct piece *next;
    size_t bytes;
    unsigned char
        data[TRACE_WRITER_PIECE / sizeof(struct nm_trace_record) * sizeof(struct nm_trace_record)];
};

struct trace_writer_file {
    int fd, done_fd;
    struct nm_trace_header header;
    struct trace_writer_stats stats;
    struct piece *piece; /* being filled, NULL none */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct piece *first, **last;
    unsigned waiting;
    bool is_ending, is_done, is_started;
    int error;
    sd_event_source *source;
    void (*ended)(void *userdata);
    void *userdata;
};

static int write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* --- the thread --- */

/* The next piece; NULL: there is none and there will be none. */
static struct piece *piece_wait(struct trace_writer_file *w)
{
    struct piece *p;

    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->is_ending)
        pthread_cond_wait(&w->changed, &w->lock);
    p = w->first;
    if (p) {
        w->first = p->next;
        if (!w->first)
            w->last = &w->first;
    }
    pthread_mutex_unlock(&w->lock);
    return p;
}

static void piece_written(struct trace_writer_file *w, int r)
{
    pthread_mutex_lock(&w->lock);
    w->waiting--;
    if (r < 0)
        w->error = r;
    pthread_mutex_unlock(&w->lock);
}

/* A file that the disk refused in the middle of a record ends with a whole one. */
static void end_write(struct trace_writer_file *w, int error)
{
    if (error < 0) {
        off_t size = lseek(w->fd, 0, SEEK_CUR), head = sizeof(w->header);
        off_t rest = size > head ? (size - head) % (off_t)sizeof(struct nm_trace_record) : 0;
        w->header.flags |= NM_TRACE_FULL;
        if (rest && ftruncate(w->fd, size - rest) < 0)
            w->header.flags |= NM_TRACE_OPEN;
    }
    if (pwrite(w->fd, &w->header, sizeof(w->header), 0) != (ssize_t)sizeof(w->header) && !error)
        error = errno ? -errno : -EIO;
    pthread_mutex_lock(&w->lock);
    w->error = error;
    w->is_done = true;
    pthread_mutex_unlock(&w->lock);
}

static void *writer_thread(void *userdata)
{
    struct trace_writer_file *w = userdata;
    struct piece *p;
    uint64_t one = 1;
    int error = 0;

    while ((p = piece_wait(w))) {
        if (error == 0)
            error = write_all(w->fd, p->data, p->bytes);
        free(p);
        piece_written(w, error);
    }
    end_write(w, error);
    if (write(w->done_fd, &one, sizeof(one)) < 0)
        return NULL; /* only a full counter refuses, and then it is readable */
    return NULL;
}

/* --- the event loop --- */

static int on_done(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    struct trace_writer_file *w = userdata;

    sd_event_source_set_enabled(source, SD_EVENT_OFF);
    if (w->ended)
        w->ended(w->userdata);
    return 0;
}

/* Signals are the event loop's. */
static int thread_start(struct trace_writer_file *w)
{
    sigset_t all, old;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&w->thread, NULL, writer_thread, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    w->is_started = r == 0;
    return -r;
}

int trace_writer_new(sd_event *event, const char *path, const struct nm_trace_header *header,
                     uint64_t max_bytes, void (*ended)(void *userdata), void *userdata,
                     struct trace_writer_file **ret, struct error *reterr)
{
    struct trace_writer_file *w = calloc(1, sizeof(*w));
    int r = 0;

    if (!w)
        return error_set(reterr, ENOMEM, "out of memory");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->last = &w->first;
    w->ended = ended;
    w->userdata = userdata;
    w->header = *header;
    trace_header_init(&w->header);
    w->header.flags |= NM_TRACE_OPEN;
    w->stats.bytes = sizeof(w->header);
    w->stats.max_bytes = max_bytes;
    w->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (w->fd < 0 || w->done_fd < 0)
        r = -errno;
    if (r == 0)
        r = write_all(w->fd, &w->header, sizeof(w->header));
    if (r == 0 && event)
        r = sd_event_add_io(event, &w->source, w->done_fd, EPOLLIN, on_done, w);
    if (r >= 0)
        r = thread_start(w);
    if (r < 0) {
        if (w->fd >= 0)
            unlink(path);
        trace_writer_free(w);
        return error_set(reterr, r, "%s: %s", path, strerror(-r));
    }
    *ret = w;
    return 0;
}

struct trace_writer_file *trace_writer_free(struct trace_writer_file *w)
{
    if (!w)
        return NULL;
    if (w->is_started) {
        struct nm_trace_header cut = w->header; /* with NM_TRACE_OPEN */
        trace_writer_end(w, &cut);
        pthread_join(w->thread, NULL);
    }
    sd_event_source_disable_unref(w->source);
    for (struct piece *p = w->first, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(w->piece);
    if (w->fd >= 0)
        close(w->fd);
    if (w->done_fd >= 0)
        close(w->done_fd);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void trace_writer_flush(struct trace_writer_file *w)
{
    struct piece *p = w->piece;

    if (!p || !p->bytes)
        return;
    w->piece = NULL;
    pthread_mutex_lock(&w->lock);
    *w->last = p;
    w->last = &p->next;
    w->waiting++;
    w->stats.error = w->error;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* Room for a record in the piece; false: there is none. */
static bool piece_room(struct trace_writer_file *w, bool always)
{
    if (w->piece && w->piece->bytes < sizeof(w->piece->data))
        return true;
    trace_writer_flush(w);
    pthread_mutex_lock(&w->lock);
    bool has_room = always || w->waiting < TRACE_WRITER_WAITING;
    w->stats.error = w->error;
    pthread_mutex_unlock(&w->lock);
    if (!has_room || w->stats.error)
        return false;
    w->piece = malloc(sizeof(*w->piece));
    if (!w->piece)
        return false;
    w->piece->next = NULL;
    w->piece->bytes = 0;
    return true;
}

static bool put(struct trace_writer_file *w, const void *record, bool always)
{
    struct trace_writer_stats *s = &w->stats;
    const size_t bytes = sizeof(struct nm_trace_record);

    if (s->max_bytes && s->bytes + bytes > s->max_bytes)
        s->is_full = true;
    if (s->is_full || s->error || w->is_ending || !piece_room(w, always)) {
        s->refused++;
        return false;
    }
    memcpy(w->piece->data + w->piece->bytes, record, bytes);
    w->piece->bytes += bytes;
    s->bytes += bytes;
    s->records++;
    return true;
}

bool trace_writer_put(struct trace_writer_file *w, const void *record)
{
    return put(w, record, false);
}

bool trace_writer_put_all(struct trace_writer_file *w, const void *records, size_t count)
{
    const struct nm_trace_record *r = records;
    bool ok = true;

    for (size_t i = 0; i < count && ok; i++)
        ok = put(w, &r[i], true);
    return ok;
}

bool trace_writer_is_over(const struct trace_writer_file *w)
{
    return w->stats.is_full || w->stats.error || w->is_ending;
}

void trace_writer_end(struct trace_writer_file *w, const struct nm_trace_header *header)
{
    if (w->is_ending)
        return;
    trace_writer_flush(w);
    w->header = *header;
    trace_header_init(&w->header);
    pthread_mutex_lock(&w->lock);
    w->is_ending = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void trace_writer_stats(struct trace_writer_file *w, struct trace_writer_stats *ret)
{
    pthread_mutex_lock(&w->lock);
    w->stats.error = w->error;
    pthread_mutex_unlock(&w->lock);
    *ret = w->stats;
}
