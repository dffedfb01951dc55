/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load LIBRARY: the library can be loaded at run time, by a program that has
 * no room for static thread-local storage; it shows nothing of jemalloc and
 * leaves malloc alone.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int failures;

static void check(bool good, const char *what)
{
	printf("%s: %s\n", good ? "ok" : "FAILED", what);
	failures += !good;
}

static bool static_tls(void *library)
{
	struct link_map *map = NULL;

	if (dlinfo(library, RTLD_DI_LINKMAP, &map))
		return true;
	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_FLAGS && (d->d_un.d_val & DF_STATIC_TLS))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	static const char *const foreign[] = {
		"mallocx", "mallctl", "vbn_je_mallocx", "vbn_je_malloc"};
	void *before = dlsym(RTLD_DEFAULT, "malloc");
	void *library;

	if (argc != 2) {
		fprintf(stderr, "usage: load LIBRARY\n");
		return EXIT_FAILURE;
	}
	library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	check(library != NULL, "dlopen");
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return EXIT_FAILURE;
	}
	check(!static_tls(library), "no static thread-local storage");
	check(dlsym(library, "vbn_pool_create") != NULL, "vbn_pool_create");
	check(dlsym(RTLD_DEFAULT, "malloc") == before, "malloc is as before");
	for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++)
		check(!dlsym(RTLD_DEFAULT, foreign[i]), foreign[i]);
	check(dlclose(library) == 0, "dlclose");
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
