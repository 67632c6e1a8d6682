/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as stat, status, cgroup, environ, title and device list. */
#include <stdlib.h>
#include <string.h>

#include "procfacts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct stat_facts stat;
    struct status_facts status;
    struct container_facts container;
    struct title_facts facts;
    struct rank_facts rank;
    uint16_t ids[VISIBLE_DEVICES_MAX];
    char title[256], value[32];
    bool inferred;

    stat_parse(text, size, &stat);
    status_parse(text, size, &status);
    if (cgroup_parse(text, size, &container) && strlen(container.id) != 64)
        abort();
    environ_get(text, size, "RANK", value, sizeof(value));
    title_from_cmdline(text, size, title, sizeof(title));
    title_parse(title, &facts);
    title_rank(&facts, &inferred);
    title_rank_sized(&facts, (const int32_t[GROUP_COUNT]){2, 0, 0, 4, 0, 0});
    int n = visible_devices_parse(title, ids);
    for (int i = 1; i < n; i++)
        if (ids[i] <= ids[i - 1])
            abort();
    rank_decide(&(struct rank_inputs){.hccl_rank = -1,
                                      .hccl_world_size = -1,
                                      .title = title,
                                      .environ_text = text,
                                      .environ_bytes = size},
                &rank);
    if ((rank.rank < 0) != (rank.source[0] == '\0'))
        abort();
    return 0;
}
