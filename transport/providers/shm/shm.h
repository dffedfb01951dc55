/* SPDX-License-Identifier: BSD-3-Clause */
/* The shm provider's own structures, shared by its files. */
#ifndef SHM_SHM_H
#define SHM_SHM_H

#include "ring.h"
#include "share.h"

#include "error.h"

#include <sys/types.h>

/*
 * Every rank shares a table of the generations of its regions, 0 for what is
 * not registered, so that a stale key is refused by one load.
 */
#define SHM_REGIONS	65536
#define SHM_TABLE_BYTES (SHM_REGIONS * sizeof(_Atomic uint32_t))

/* Another process's table, mapped once. */
struct shm_table {
	uint8_t address[SHARE_BYTES];
	_Atomic uint32_t *generations;
	struct shm_table *next;
};

struct shm_job {
	struct vbn_job *job;
	struct share *share;
	bool joined; /* fence_join() */
	int table_fd, table_id;
	_Atomic uint32_t *generations;
	struct shm_table *tables; /* control thread's */
};

/* One page a context, mapped by its peers. */
struct ctx_page {
	_Atomic uint32_t armed; /* asleep, or about to: signal the eventfd */
	bool fence;		/* who looks at armed has to fence; constant */
};

struct shm_region;

/* Regions whose place was told to the user, each counted; the last first. */
struct shm_given {
	struct shm_region **regions;
	int n, room;
};

struct shm_ctx {
	struct shm_job *pjob;
	struct vbn_ctx *ctx;
	int page_fd, page_id, wake_id;
	struct ctx_page *page;
	struct shm_conn **conns; /* attached; NULL: closed, compacted later */
	int nconns, room;
	bool has_holes;
	/* Operations that are over, to be completed by the next progress. */
	struct vbn_op *done, *done_last;
	struct vbn_counters *counters;
	struct shm_given given; /* by connections that are closed */
};

struct shm_conn {
	struct quick quick; /* first */
	struct ring rx, tx;
	struct ctx_page *peer_page;
	bool fence; /* fence_light() has to */
	bool self;
	int peer_wake; /* eventfd, -1 if our own context */
	struct shm_ctx *pctx;
	struct vbn_ep *ep;
	struct ring_shared *pair; /* both rings: creator's out first */
	int pair_fd, pair_id;	  /* creator's, until finished */
	struct shm_given given;
};

/* A peer's region: counted by its import, and where it is given. */
struct shm_region {
	char *map; /* where [base, base + length) is here, or NULL: heap */
	size_t map_len;
	uint64_t base;
	unsigned access;
	pid_t pid;
	bool own;		     /* of this process: map is not a mapping */
	const _Atomic uint32_t *now; /* the region's generation, live */
	uint32_t generation;
	_Atomic int refs;
};

/* region.c */
int shm_mem_register(void *pjob, const struct vbn_mem *mem, void **handle,
		     struct blob *announce);
void shm_mem_deregister(void *pjob, void *handle);
int shm_region_import(void *pjob, int rank, uint64_t base, uint64_t length,
		      const struct blob *announce, void **import);
void shm_import_release(void *pjob, void *import);
/* Whether the owner has it registered still. */
static inline bool shm_region_is_live(const struct shm_region *region)
{
	return atomic_load_explicit(region->now, memory_order_relaxed) ==
	       region->generation;
}

static inline bool shm_region_may(const struct shm_region *region,
				  unsigned access)
{
	return (region->access & access) && shm_region_is_live(region);
}

/* map.c */
int shm_map(void *conn, void *key, uint64_t remote, void **ptr);
void shm_region_put(struct shm_region *region);
/* Its place stays, but its bytes are let go of. */
void shm_region_blank(struct shm_region *region);
/* The connection closes; what it has given out is the context's from here. */
void shm_given_hand_over(struct shm_given *from, struct shm_given *to);
void shm_given_free(struct shm_given *given);

int shm_tables_open(struct shm_job *pjob);
void shm_tables_close(struct shm_job *pjob);
/* Copy to or from memory that is not mapped here: 0, or -errno. */
int shm_copy_across(struct shm_conn *conn, const struct shm_region *region,
		    uint64_t remote, void *local, size_t len, bool write);

/* conn.c */
int shm_conn_create(void *pctx, const struct conn_info *info,
		    const struct blob *peer_address, void **conn,
		    struct blob *offer);
int shm_conn_accept(void *pctx, const struct conn_info *info,
		    const struct blob *peer_address, const struct blob *offer,
		    void **conn, struct blob *answer);
int shm_conn_finish(void *conn, const struct blob *answer);
int shm_conn_attach(void *conn, struct vbn_ep *ep);
void shm_conn_close(void *conn, int status);
/* What waits for completion is the core's to complete. */
void shm_done_hand_over(struct shm_ctx *pctx);
/* The blob by which peers fetch a context's page and eventfd. */
void shm_ctx_address(const struct shm_ctx *pctx, struct blob *address);

#endif
