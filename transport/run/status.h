/* SPDX-License-Identifier: BSD-3-Clause */
/* Exit statuses of verbena-run's own, as timeout(1) and shells have them. */
#ifndef VERBENA_RUN_STATUS_H
#define VERBENA_RUN_STATUS_H

#define EXIT_TIMEOUT   124
#define EXIT_LAUNCHER  125
#define EXIT_CANNOT    126
#define EXIT_NOT_FOUND 127

#endif
