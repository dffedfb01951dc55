/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job: the ranks that started together, and the control plane that ties
 * them (rendezvous store on rank 0, key-value exchange, liveness).
 *
 * Conventions of every verbena header:
 * - Functions return 0 or -errno unless stated; outputs are written on
 *   success only. vbn_error() then holds one line for people.
 * - timeout_ms < 0 waits for ever, 0 does not wait.
 * - "Blocking" functions return within their deadline.
 */
#ifndef VERBENA_JOB_H
#define VERBENA_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VBN_API __attribute__((visibility("default")))

#define VBN_VERSION_MAJOR 0
#define VBN_VERSION_MINOR 1

struct vbn_job;

/*
 * What a job needs to start. Zero or NULL members are taken from the
 * environment, in this order:
 *   rank, nranks   VBN_RANK, VBN_SIZE (Kubernetes: JOB_COMPLETION_INDEX,
 *                  VBN_SIZE); else RANK, WORLD_SIZE (torchrun); else PMIx
 *                  (mpirun, srun --mpi=pmix), by which all ranks of the
 *                  launcher must open the job; else Open MPI's, MPICH's, or
 *                  Slurm's variables; else a job of one
 *   address        VBN_ADDRESS "host:port"; else what rank 0 has told through
 *                  PMIx; else MASTER_ADDR, MASTER_PORT; else Slurm's first node
 *   secret         VBN_SECRET; else the file that VBN_SECRET_FILE names; else
 *                  what rank 0 has made and told through PMIx. A job of more
 *                  than one rank without a secret is refused unless
 *                  VBN_INSECURE=1; so is a file that others may read
 *   (interface)    VBN_SOCKET_IFNAME: the one by which the ranks meet, if a
 *                  host has several; VBN_LOCAL_SIZE: how many of the ranks
 *                  are on this host (torchrun, Slurm, Open MPI and MPICH say
 *                  it in their own variables). Rank 0 does not wait on the
 *                  loopback interface when ranks are elsewhere
 *   provider       VBN_PROVIDER (shm, verbs, ucx; empty: chosen per peer)
 *   timeout_ms     VBN_TIMEOUT_MS, default 30,000: for start, connecting and
 *                  control-plane requests
 *   (heartbeats)   VBN_DEAD_MS, default 5,000, rank 0's holds: a process that
 *                  ends is known everywhere at once; a host or network that is
 *                  lost, or a rank that is stopped, within this time. 0: ranks
 *                  that are stopped are waited for
 */
struct vbn_job_options {
	size_t size; /* sizeof(struct vbn_job_options) */
	int rank;    /* used when nranks > 0 */
	int nranks;  /* 0: from the environment */
	const char *address;
	const char *secret;
	const char *provider;
	int timeout_ms;
	int listen_fd; /* rank 0: a bound, listening socket + 1, or 0. The
			  job owns it afterwards (VBN_LISTEN_FD) */
};

/*
 * Join the job. Blocks until every rank has joined, at most the timeout;
 * -ETIMEDOUT names the ranks that are missing, -EACCES a wrong secret,
 * -EADDRINUSE a port in use, -EPROTO a foreign version or job shape.
 * @opts may be NULL. Thread: any; several jobs may be open at once.
 */
VBN_API int vbn_job_open(struct vbn_job **job,
			 const struct vbn_job_options *opts);

/*
 * Leave the job. All contexts, pools and registrations must be closed
 * (-EBUSY, nothing done, otherwise). Other ranks see an orderly leave, not a
 * death. Rank 0 waits, at most the job's timeout, until all others have left
 * or died, since it serves the store. Blocks. The job is freed.
 */
VBN_API int vbn_job_close(struct vbn_job *job);

/*
 * The caller's rank, 0 .. size - 1, and how many ranks the job has. Any thread;
 * never block.
 */
VBN_API int vbn_job_rank(const struct vbn_job *job);
VBN_API int vbn_job_size(const struct vbn_job *job);

/* The timeout that the job was opened with, ms. */
VBN_API int vbn_job_timeout_ms(const struct vbn_job *job);

/*
 * Key-value exchange. Keys are strings of 1..255 bytes, values of up to
 * 64 KiB. set replaces; get waits until the key exists. *len is the room on
 * entry, the value's length on return (-EMSGSIZE: too small). Blocking;
 * thread-safe. -ETIMEDOUT, -ECONNRESET (rank 0 is gone).
 */
VBN_API int vbn_job_set(struct vbn_job *job, const char *key, const void *value,
			size_t len, int timeout_ms);
VBN_API int vbn_job_get(struct vbn_job *job, const char *key, void *value,
			size_t *len, int timeout_ms);

/*
 * Wait until every rank of the job has called it as often. Blocking.
 * -ETIMEDOUT, -ECONNRESET when a rank has died or left.
 */
VBN_API int vbn_job_fence(struct vbn_job *job, int timeout_ms);

/*
 * Which of @ranks (@n of them; NULL: 0 .. n - 1) can map each other's memory:
 * hosts[i] is the number of the i-th's host, counted from 0 in the order of
 * the list. A rank that has no shared memory (another provider was forced, or
 * it failed) is a host of its own. Returns how many there are, or -ETIMEDOUT,
 * -ECONNRESET. Blocks for a request to the store for every 4,096 ranks.
 */
VBN_API int vbn_job_hosts(struct vbn_job *job, const int *ranks, int n,
			  int *hosts, int timeout_ms);

/*
 * The first rank that was heard to have died, or -1: the cause, when others
 * end because of it. This rank itself, when the job has named it dead (it was
 * stopped, or cut off, for longer than VBN_DEAD_MS): then it is out of the job,
 * and all its work ends with -ECONNRESET. Any thread; never blocks.
 */
VBN_API int vbn_job_dead(const struct vbn_job *job);
/* Whether @rank has died (not: left in order). Any thread; never blocks. */
VBN_API bool vbn_job_rank_dead(const struct vbn_job *job, int rank);

/*
 * One line on the last error of the calling thread, "" if none. Valid until
 * the thread's next verbena call.
 */
VBN_API const char *vbn_error(void);

#ifdef __cplusplus
}
#endif

#endif
