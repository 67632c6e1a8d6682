/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget_report.c - names of the terms, and the row of one rank.
 */
#include "budget_internal.h"

static const struct {
    const char *name;
    bool is_planned;
} rows[BUDGET_TERM_COUNT] = {
    [BUDGET_CARD_TOTAL] = {"card_total", false},
    [BUDGET_BUDGET] = {"budget", false},
    [BUDGET_OTHERS] = {"others_at_start", false},
    [BUDGET_WEIGHTS] = {"weights", true},
    [BUDGET_PEAK] = {"profile_peak", true},
    [BUDGET_NON_TORCH] = {"non_torch", true},
    [BUDGET_AVAILABLE] = {"available", false},
    [BUDGET_KV_CACHE] = {"kv_cache", false},
    [BUDGET_GRAPH] = {"graph", false},
    [BUDGET_BUFFERS] = {"input_buffers", false},
    [BUDGET_LOADED] = {"loaded_beside_weights", false},
    [BUDGET_SLACK] = {"pool_slack", false},
    [BUDGET_LATER] = {"non_torch_later", false},
    [BUDGET_OTHERS_GREW] = {"others_grew", false},
};

const char *budget_term_name(enum budget_term_id id)
{
    return rows[id].name;
}

static void write_i64(struct json *j, const char *key, int64_t value)
{
    json_ki64_or_null(j, key, value != BUDGET_UNKNOWN, value);
}

static void write_term(const struct budget_term *t, size_t id, struct json *j)
{
    json_object(j);
    json_kstr(j, "term", rows[id].name);
    write_i64(j, "bytes", t->bytes);
    json_kbool(j, "planned", rows[id].is_planned);
    json_kbool(j, "inferred", t->is_inferred);
    json_kstr(j, "source", t->source);
    json_kstr(j, "reason", t->reason);
    json_end(j);
}

void budget_write(const struct budget_input *in, const struct budget_result *r, struct json *j)
{
    static const char *const verdicts[] = {
        [BUDGET_FITS] = "FITS",
        [BUDGET_NEGATIVE] = "NEGATIVE",
        [BUDGET_REFUSED] = "REFUSED",
        [BUDGET_OVERRUN] = "OVERRUN",
        [BUDGET_INCOMPLETE] = "INCOMPLETE",
    };

    json_object(j);
    json_ku64(j, "tgid", in->tgid);
    json_ku64(j, "server_tgid", in->server_tgid);
    json_kindex(j, "rank", in->rank);
    json_kindex(j, "device", in->device);
    json_kstr(j, "comm", in->comm);
    json_kstr(j, "state", in->has_ended ? "exited" : "running");
    json_kbool(j, "late", in->is_late);
    json_kstr(j, "verdict", verdicts[r->verdict]);
    json_kstr(j, "reason", r->reason);
    json_kstr(j, "complaint", r->complaint[0] ? r->complaint : NULL);
    json_kdouble_or_null(j, "utilization", r->utilization > 0, r->utilization);
    json_kstr(j, "utilization_source", r->utilization_source);
    for (size_t i = 0; i < BUDGET_TERM_COUNT; i++) {
        char key[48];
        snprintf(key, sizeof(key), "%s_bytes", rows[i].name);
        write_i64(j, key, r->terms[i].bytes);
    }
    write_i64(j, "free_at_start_bytes", in->start.is_known ? in->start.free_bytes : BUDGET_UNKNOWN);
    write_i64(j, "sum_bytes", r->sum_bytes);
    write_i64(j, "unplanned_bytes", r->unplanned_bytes);
    analysis_u64(j, "short_bytes", in->has_failure ? r->short_bytes : ANALYSIS_UNKNOWN);
    json_karray(j, "terms");
    for (size_t i = 0; i < BUDGET_TERM_COUNT; i++)
        write_term(&r->terms[i], i, j);
    json_end(j);
    advice_write(&r->advice, j);
    json_end(j);
}
