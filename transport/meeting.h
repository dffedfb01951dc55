/* SPDX-License-Identifier: BSD-3-Clause */
/* A place to meet that rank 0's host makes by itself. */
#ifndef VBN_MEETING_H
#define VBN_MEETING_H

#include "reach.h"

/*
 * A listening socket at a free port for the ranks of this host, or of
 * @several; and @list: reach_list() of it. For one host it listens at
 * loopback, with @ifname at that interface's first address, else at all, as
 * the others choose. Close-on-exec, blocking; the caller's. -errno with
 * vbn_fail(), where @why says how it is known that there are several.
 */
int meeting_open(bool several, const char *ifname, const char *why,
		 char list[REACH_TEXT], uint16_t *port);

#endif
