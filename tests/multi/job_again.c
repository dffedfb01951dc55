/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * usage: job_again TIMES [ABSENT]: opens TIMES jobs, one after another, by
 * whatever launcher there is, and has each rank read what the next has set.
 * The PMIx rank ABSENT opens none. UCX is left out: what is to be seen of
 * signal handlers is the launcher's part.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <verbena/job.h>

#define SIGNALS	   32
#define TIMEOUT_MS 10000

static int fail(const char *what)
{
	fprintf(stderr, "job_again: %s: %s\n", what, vbn_error());
	return 1;
}

static int one_job(int round)
{
	struct vbn_job_options options = {.size = sizeof(options),
					  .provider = "shm"};
	int rank, size, mine, got = -1;
	size_t len = sizeof(got);
	struct vbn_job *job;
	char key[32];

	if (vbn_job_open(&job, &options))
		return fail("open");
	rank = vbn_job_rank(job);
	size = vbn_job_size(job);
	mine = 100 * round + rank;
	snprintf(key, sizeof(key), "value.%d", rank);
	if (vbn_job_set(job, key, &mine, sizeof(mine), TIMEOUT_MS))
		return fail("set");
	snprintf(key, sizeof(key), "value.%d", (rank + 1) % size);
	if (vbn_job_get(job, key, &got, &len, TIMEOUT_MS))
		return fail("get");
	if (got != 100 * round + (rank + 1) % size) {
		printf("rank %d got %d in job %d\n", rank, got, round);
		return 1;
	}
	printf("job %d: rank %d of %d got %d\n", round, rank, size, got);
	return vbn_job_close(job) ? fail("close") : 0;
}

int main(int argc, char **argv)
{
	const char *rank = getenv("PMIX_RANK");
	struct sigaction before[SIGNALS], after;
	int times = argc > 1 ? atoi(argv[1]) : 1;

	if (argc > 2 && rank && !strcmp(rank, argv[2])) {
		sleep(4); /* or mpirun might end all before they complain */
		return 0;
	}
	for (int s = 1; s < SIGNALS; s++)
		sigaction(s, NULL, &before[s]);
	for (int i = 0; i < times; i++)
		if (one_job(i))
			return 1;
	for (int s = 1; s < SIGNALS; s++)
		if (!sigaction(s, NULL, &after) &&
		    after.sa_handler != before[s].sa_handler)
			printf("signal %d has another handler\n", s);
	return 0;
}
