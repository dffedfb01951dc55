/* SPDX-License-Identifier: BSD-3-Clause */
/* verbena-run on another host: it starts that host's ranks for a launcher. */
#ifndef VERBENA_RUN_AGENT_H
#define VERBENA_RUN_AGENT_H

/*
 * Serve the launcher on standard input and output until it goes, or all ranks
 * have ended. When it goes, or says nothing for a minute, the ranks are
 * killed. The exit status.
 */
int agent_main(void);

#endif
