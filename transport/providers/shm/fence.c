/* SPDX-License-Identifier: BSD-3-Clause */
/* The asymmetric fence: see fence.h. */
#include "fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
_Atomic int fence_order;
#endif

static bool membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool fence_join(void)
{
	return membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

bool fence_heavy(bool joined)
{
	fence_light(true);
	return !joined || membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}
