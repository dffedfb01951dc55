/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where modules are: beside the library (build tree) or in a directory of its
 * own there (installed). By their path, as a sanitizer's dlopen() does not
 * know whose run path to search.
 */
#include "module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *open_module(const char *file)
{
	static const char *const places[] = {"", "verbena/"};
	char path[PATH_MAX];
	void *module = NULL;
	Dl_info here;
	const char *slash;
	size_t dir;

	if (!dladdr(open_module, &here) || !here.dli_fname)
		return dlopen(file, RTLD_NOW | RTLD_LOCAL);
	slash = strrchr(here.dli_fname, '/');
	dir = slash ? (size_t)(slash - here.dli_fname) + 1 : 0;
	for (size_t i = 0; !module && i < 2; i++) {
		snprintf(path, sizeof(path), "%.*s%s%s", (int)dir,
			 here.dli_fname, places[i], file);
		if (access(path, R_OK) == 0)
			module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return module ? module : dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

const void *module_load(const char *file, const char *symbol, char *why,
			size_t room)
{
	void *module = open_module(file);
	const void *found;

	if (!module) {
		snprintf(why, room, "%s", dlerror());
		return NULL;
	}
	/* Never unloaded: libraries leave threads and atexit handlers behind.
	 */
	found = dlsym(module, symbol);
	if (!found)
		snprintf(why, room, "%s has no %s", file, symbol);
	return found;
}
