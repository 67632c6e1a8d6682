/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl_misc.c - the rest of the ACL layer: initialisation, versions, callbacks, graph capture.
 * Owns the list of streams that are being captured; a captured graph holds nothing.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl.h"

#define INITIALIZED_ALREADY 100002
#define CAPTURE_STATUS 107000

struct capture {
    void *stream;
    void *model;
    struct capture *next;
};

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static int initialized;
static int sat_mode = 1;

int acl_init(const char *config_path)
{
    (void)config_path;
    return __atomic_exchange_n(&initialized, 1, __ATOMIC_RELAXED) ? INITIALIZED_ALREADY : 0;
}

int acl_finalize(void)
{
    __atomic_store_n(&initialized, 0, __ATOMIC_RELAXED);
    return 0;
}

int acl_put_int(int *place, int value)
{
    if (!place)
        return SIM_ACL_INVALID_PARAM;
    *place = value;
    return 0;
}

int acl_set_sat_mode(int mode)
{
    sat_mode = mode;
    return 0;
}

int acl_get_sat_mode(int *mode)
{
    return acl_put_int(mode, sat_mode);
}

int acl_device_status(int32_t device, int *status)
{
    int r = rtCheckDevice(device);

    return r ? r : acl_put_int(status, 0);
}

const char *acl_soc_name(void)
{
    const char *name = getenv("NPUSIM_SOC");

    return name ? name : "Ascend910B3";
}

int acl_launch_callback(void (*callback)(void *), void *data)
{
    if (!callback)
        return SIM_ACL_INVALID_PARAM;
    callback(data); /* streams are always done, so its turn is now */
    return 0;
}

int acl_process_report(int32_t timeout_ms)
{
    /* Nothing is ever pending; wait as asked, at most a second, so that a polling thread idles. */
    usleep((useconds_t)(timeout_ms < 0 || timeout_ms > 1000 ? 1000 : timeout_ms) * 1000);
    return 0;
}

int acl_capture_begin(void *stream)
{
    struct capture *made = calloc(1, sizeof(*made));

    if (made)
        made->model = calloc(1, 64);
    if (!made || !made->model) {
        free(made);
        return SIM_RT_DRV_INTERNAL;
    }
    made->stream = stream;
    pthread_mutex_lock(&capture_lock);
    made->next = captures;
    captures = made;
    pthread_mutex_unlock(&capture_lock);
    return 0;
}

int acl_capture_info(void *stream, int *status, void **model)
{
    int active = 0;

    pthread_mutex_lock(&capture_lock);
    if (model)
        *model = NULL;
    for (const struct capture *at = captures; at; at = at->next)
        if (at->stream == stream) {
            active = 1;
            if (model)
                *model = at->model;
            break;
        }
    pthread_mutex_unlock(&capture_lock);
    return acl_put_int(status, active);
}

int acl_capture_end(void *stream, void **model)
{
    int r = CAPTURE_STATUS;

    if (!model)
        return SIM_ACL_INVALID_PARAM;
    pthread_mutex_lock(&capture_lock);
    for (struct capture **at = &captures; *at; at = &(*at)->next)
        if ((*at)->stream == stream) {
            struct capture *done = *at;

            *at = done->next;
            *model = done->model;
            free(done);
            r = 0;
            break;
        }
    pthread_mutex_unlock(&capture_lock);
    return r;
}

int acl_task_group(void **handle)
{
    static char group;

    if (!handle)
        return SIM_ACL_INVALID_PARAM;
    *handle = &group;
    return 0;
}

int acl_model_destroy(void *model)
{
    free(model);
    return model ? 0 : SIM_ACL_INVALID_PARAM;
}

int acl_version_numbers(int32_t *major, int32_t *minor, int32_t *patch)
{
    if (!major || !minor || !patch)
        return SIM_ACL_INVALID_PARAM;
    *major = SIM_LAYOUT / 10;
    *minor = SIM_LAYOUT % 10;
    *patch = 0;
    return 0;
}

int acl_version(char *version)
{
    if (!version)
        return SIM_ACL_INVALID_PARAM;
    snprintf(version, 16, "%d.%d.0", SIM_LAYOUT / 10, SIM_LAYOUT % 10);
    return 0;
}

const char *acl_error_text(void)
{
    return "";
}

int acl_compile_option(char *value, size_t length)
{
    if (!value || !length)
        return SIM_ACL_INVALID_PARAM;
    memset(value, 0, length);
    return 0;
}
