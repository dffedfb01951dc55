/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sum over all ranks, by a user of the installed library:
 *   cc allreduce.c $(pkg-config --cflags --libs verbena) -o allreduce
 *   verbena-run -n 2 ./allreduce
 */
#include <verbena/collectives.h>

int main(void)
{
	struct vbn_job *job = NULL;
	struct vbn_ctx *ctx = NULL;
	struct vbn_comm *comm = NULL;
	float data[1000];
	int err;

	if ((err = vbn_job_open(&job, NULL)) == 0 &&
	    (err = vbn_ctx_open(&ctx, job, NULL)) == 0 &&
	    (err = vbn_comm_create(&comm, ctx, NULL, 0, NULL)) == 0) {
		for (int i = 0; i < 1000; i++)
			data[i] = (float)(vbn_job_rank(job) + i);
		err = vbn_allreduce(comm, NULL, data, 1000, VBN_FLOAT32,
				    VBN_SUM, vbn_job_timeout_ms(job));
	}
	if (err)
		fprintf(stderr, "allreduce: %s\n", vbn_error());
	else
		printf("rank %d of %d: data[7] = %g\n", vbn_job_rank(job),
		       vbn_job_size(job), (double)data[7]);
	if (comm)
		vbn_comm_free(comm);
	if (ctx)
		vbn_ctx_close(ctx);
	if (job)
		vbn_job_close(job);
	return err != 0;
}
