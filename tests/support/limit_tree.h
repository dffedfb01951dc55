/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Directories that stand for / when limits are read: recorded files of /proc
 * and /sys, written for one test.
 */
#ifndef TESTS_LIMIT_TREE_H
#define TESTS_LIMIT_TREE_H

#define TREE_PATH 64

struct tree_file {
	const char *path, *content; /* the last of a list: NULL */
};

/* Writes @files under a new directory, whose name goes to @root. */
int tree_make(char root[TREE_PATH], const struct tree_file *files);
/* Writes or replaces one file. 0, or -1. */
int tree_write(const char *root, const char *path, const char *content);
void tree_remove(const char *root);

#endif
