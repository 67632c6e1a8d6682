/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget_internal.h - what budget.c and budget_report.c share. Nobody else includes it.
 */
#ifndef NPUMEM_ANALYSIS_BUDGET_INTERNAL_H
#define NPUMEM_ANALYSIS_BUDGET_INTERNAL_H

#include "budget.h"
#include "settings.h"

/* "card_total", "weights", ... */
const char *budget_term_name(enum budget_term_id id);

/* The term to change, and what else would help; r has everything but advice. */
void budget_advise(const struct budget_input *in, const struct settings *s,
                   struct budget_result *r);

#endif
