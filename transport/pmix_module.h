/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a launcher that speaks PMIx (mpirun, srun --mpi=pmix) says, and a text
 * that rank 0 has for all. libpmix is in a module of its own, which is loaded
 * only when such a launcher is there.
 */
#ifndef VBN_PMIX_MODULE_H
#define VBN_PMIX_MODULE_H

#include <stddef.h>

#define VBN_PMIX_FILE	  "libverbena-pmix.so"
#define VBN_PMIX_SYMBOL	  "vbn_pmix_module"
#define VBN_PMIX_TEXT_MAX 8192 /* of rank 0's text, with its end */

struct pmix_place {
	int rank, nranks;
	int local; /* ranks on this host; 0: it does not say */
};

/*
 * The module. begin, exchange, end are called in this order, by one thread;
 * another thread's begin waits until then. Each blocks, at most @timeout_ms
 * (< 0: no limit), and fails with vbn_fail(): -ETIMEDOUT; -EIO: libpmix's own
 * error; -EPROTO: what it says makes no sense. After a begin that failed there
 * is no end.
 */
struct pmix_module {
	int (*begin)(struct pmix_place *place, int timeout_ms);
	/*
	 * By every rank. @text is rank 0's to give, and what it gave for all
	 * others: VBN_PMIX_TEXT_MAX bytes.
	 */
	int (*exchange)(char *text, int timeout_ms);
	void (*end)(int timeout_ms);
};

#endif
