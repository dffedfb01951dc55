/* SPDX-License-Identifier: BSD-3-Clause */
/* Recorded trees; see the header. */
#include "limit_tree.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int tree_write(const char *root, const char *path, const char *content)
{
	char full[PATH_MAX];
	int bad;
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "w");
	if (!f)
		return -1;
	bad = fputs(content, f) < 0;
	return fclose(f) || bad ? -1 : 0;
}

int tree_make(char root[TREE_PATH], const struct tree_file *files)
{
	snprintf(root, TREE_PATH, "/tmp/verbena-limits-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	for (; files->path; files++)
		if (tree_write(root, files->path, files->content))
			return -1;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void tree_remove(const char *root)
{
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
