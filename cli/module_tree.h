/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module_tree.h - the modules of a scanned process as a tree, for scan --tree and ls --tree.
 */
#ifndef NPUMEM_CLI_MODULE_TREE_H
#define NPUMEM_CLI_MODULE_TREE_H

#include <json-c/json.h>

#include "cli.h"
#include "out.h"

/* Prints modules[], layers[], parameters[] and dtypes[] of a document of the method Scan. Numbered
 * modules in a row that are alike are one line, unless -v was given. */
void module_tree_print(const struct args *args, const struct out *o, struct json_object *document);

/* ls --tree: the same for every process that the filters take. Returns an exit code. */
int verb_ls_tree(const struct args *args);

#endif
