/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_tree.c - a treap of blocks; priorities come from the addresses, so that runs repeat.
 */
#include "alloc_internal.h"

static int compare(const struct alloc_tree *t, const struct alloc_block *a,
                   const struct alloc_block *b)
{
    if (a->stream != b->stream)
        return a->stream < b->stream ? -1 : 1;
    if (!t->is_by_address && a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return 0;
}

/* Divides what is below *root into blocks before and not before key. */
static void split(const struct alloc_tree *t, struct alloc_block *root,
                  const struct alloc_block *key, struct alloc_block **ret_before,
                  struct alloc_block **ret_after)
{
    while (root) {
        if (compare(t, root, key) < 0) {
            *ret_before = root;
            ret_before = &root->right;
            root = root->right;
        } else {
            *ret_after = root;
            ret_after = &root->left;
            root = root->left;
        }
    }
    *ret_before = *ret_after = NULL;
}

void alloc_tree_insert(struct alloc_tree *t, struct alloc_block *b)
{
    struct alloc_block **at = &t->root;

    /* Fibonacci hashing: 2^64 / golden ratio */
    b->priority = (uint32_t)(b->address / ALLOC_MIN_BLOCK * 0x9e3779b97f4a7c15u >> 32);
    while (*at && (*at)->priority >= b->priority)
        at = compare(t, *at, b) < 0 ? &(*at)->right : &(*at)->left;
    split(t, *at, b, &b->left, &b->right);
    *at = b;
}

void alloc_tree_erase(struct alloc_tree *t, struct alloc_block *b)
{
    struct alloc_block **at = &t->root, *left = b->left, *right = b->right;

    while (*at && *at != b)
        at = compare(t, *at, b) < 0 ? &(*at)->right : &(*at)->left;
    while (left && right) {
        if (left->priority >= right->priority) {
            *at = left;
            at = &left->right;
            left = left->right;
        } else {
            *at = right;
            at = &right->left;
            right = right->left;
        }
    }
    *at = left ? left : right;
    b->left = b->right = NULL;
}

struct alloc_block *alloc_tree_first(const struct alloc_tree *t)
{
    struct alloc_block *b = t->root;

    while (b && b->left)
        b = b->left;
    return b;
}

struct alloc_block *alloc_tree_lower(const struct alloc_tree *t, const struct alloc_block *key)
{
    struct alloc_block *best = NULL;

    for (struct alloc_block *at = t->root; at;) {
        if (compare(t, at, key) < 0) {
            at = at->right;
        } else {
            best = at;
            at = at->left;
        }
    }
    return best;
}

struct alloc_block *alloc_tree_next(const struct alloc_tree *t, const struct alloc_block *b)
{
    struct alloc_block *best = NULL;

    for (struct alloc_block *at = t->root; at;) {
        if (compare(t, at, b) <= 0) {
            at = at->right;
        } else {
            best = at;
            at = at->left;
        }
    }
    return best;
}

struct alloc_block *alloc_tree_before(const struct alloc_tree *t, const struct alloc_block *b)
{
    struct alloc_block *best = NULL;

    for (struct alloc_block *at = t->root; at;) {
        if (compare(t, at, b) < 0) {
            best = at;
            at = at->right;
        } else {
            at = at->left;
        }
    }
    return best;
}
