/* SPDX-License-Identifier: BSD-3-Clause */
/* Modules: parts of the library that need a library which not all have. */
#ifndef VBN_MODULE_H
#define VBN_MODULE_H

#include <stddef.h>

/*
 * Load the module of the file name @file and return its symbol @symbol. It is
 * never unloaded. NULL: @why has the reason. Any thread.
 */
const void *module_load(const char *file, const char *symbol, char *why,
			size_t room);

#endif
