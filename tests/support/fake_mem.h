/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stand-ins for a job's registrations and its count of open objects, for the
 * unit tests of pools. Thread-safe counters of what is registered.
 */
#ifndef TESTS_FAKE_MEM_H
#define TESTS_FAKE_MEM_H

#include "memory.h"

#include <stdbool.h>

/* A job for the pool functions, which only pass it on. */
struct vbn_job *fake_job(void);

long fake_mem_holds(void);	/* of the job */
long fake_mem_registered(void); /* registrations now */
size_t fake_mem_bytes(void);	/* their bytes */
size_t fake_mem_peak(void);	/* the most bytes there were */
bool fake_mem_holds_range(const void *addr, size_t len);
/* The descriptor behind @addr, or -1, and the size of its pages. */
int fake_mem_fd(const void *addr);
size_t fake_mem_page(const void *addr);
/* mprotect() all that is registered. */
int fake_mem_protect(int prot);
/* Of the next registrations, fail all after @good; < 0: none. */
void fake_mem_fail_after(long good);
/* Registrations whose descriptor, size, seals or alignment was wrong. */
long fake_mem_wrong(void);
void fake_mem_reset_peak(void);

#endif
