/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods_analysis.c - the methods of analyses that the live ledger answers.
 *
 * An analysis is one call of its view (lib/analysis/<name>.h) with the parameters of its query. One
 * that first has to gather its input, from the store or over time, is a file of its own
 * (method_<name>.c).
 */
#include "frag.h"
#include "method_context.h"
#include "methods.h"

static const struct scan_result *on_scan(void *userdata, uint32_t tgid, uint64_t *ret_time_ns)
{
    struct manager *m = userdata;
    return m->scans ? scans_result(m->scans, tgid, ret_time_ns) : NULL;
}

/* Blocks below this are not seen one by one. */
static uint64_t summed_below(const struct config *config)
{
    if (config->probes_block_detail == CONFIG_BLOCK_DETAIL_OFF)
        return UINT64_MAX;
    return config->probes_block_detail == CONFIG_BLOCK_DETAIL_ALL ? 0
                                                                  : config->probes_block_threshold;
}

int method_frag(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct method_filter f = {};
    struct frag_query q = {
        .summed_below_bytes = summed_below(&m->config), .scan_fn = on_scan, .userdata = m};
    struct view_context c;
    struct json j = {};
    int r = method_filter_read(call, &f);

    if (r == 0)
        r = api_param_u64(call, "request_bytes", INT64_MAX, &q.request_bytes);
    if (r >= 0)
        r = api_param_bool(call, "map", &q.with_map);
    if (r >= 0)
        r = method_begin(call, m, &f, METHOD_LEDGER, &c);
    if (r <= 0)
        return r;
    method_document_begin(&j);
    return method_document_reply(call, &j, view_frag(m->ledger, &c, &q, &j));
}
