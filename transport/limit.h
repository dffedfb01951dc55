/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the machine and the kernel allow this process, and how much of it is
 * used. The functions only read; all are thread-safe and may block for files
 * of /proc and /sys.
 *
 * @root is put before /proc, /sys and /dev: "" for this machine, or a
 * directory with a recorded tree. They return 0, or -errno when the files are
 * not there (-ENOENT: the kernel has no such limit).
 *
 * (Not "limits.h": that would hide the C library's.)
 */
#ifndef VBN_LIMIT_H
#define VBN_LIMIT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMITS_NONE UINT64_MAX /* nothing limits it */
#define LIMITS_2M   ((size_t)2 << 20)
#define LIMITS_1G   ((size_t)1 << 30)

struct limits_memlock {
	uint64_t soft, hard;	 /* bytes, RLIMIT_MEMLOCK */
	uint64_t locked, pinned; /* bytes: by mlock(), by registrations */
	bool unbounded;		 /* CAP_IPC_LOCK is held, and counts */
};
int limits_memlock(const char *root, struct limits_memlock *memlock);

struct limits_count {
	uint64_t limit, used;
};
/* Mappings of the process. Reads /proc/self/maps: slow when there are many. */
int limits_maps(const char *root, struct limits_count *maps);

struct limits_files {
	uint64_t soft, hard, used;
};
int limits_files(const char *root, struct limits_files *files);

/*
 * The tightest of the process's control group and those above it: the one
 * with the least left. What can be reclaimed at once (inactive files) does not
 * count as used.
 */
struct limits_cgroup {
	int version;	     /* 1, 2 */
	char file[PATH_MAX]; /* that holds the limit, without root */
	uint64_t limit, used;
};
int limits_cgroup_memory(const char *root, struct limits_cgroup *group);
int limits_cgroup_pids(const char *root, struct limits_cgroup *group);

struct limits_huge {
	uint64_t total, free, reserved; /* pages; total has the surplus */
	uint64_t surplus, overcommit;	/* there now; allowed at most */
};
/* @page_bytes: LIMITS_2M, LIMITS_1G, or what else the machine has. */
int limits_huge(const char *root, size_t page_bytes, struct limits_huge *huge);
/* Pages that can be had now. */
uint64_t limits_huge_left(const struct limits_huge *huge);
/* The chosen word of shmem_enabled: "never", "advise", "within_size", ... */
int limits_thp_shmem(const char *root, char *mode, size_t room);

struct limits_memory {
	uint64_t total, available, swap_free; /* bytes, of the machine */
};
int limits_memory(const char *root, struct limits_memory *memory);
/* Size and what is free of the file system at /dev/shm, bytes. */
int limits_dev_shm(const char *root, uint64_t *size, uint64_t *available);

struct limits_node {
	int node;
	uint64_t memory, free, reclaimable; /* bytes */
	char cpus[256];			    /* a list: "0-3,8" */
};
/*
 * The online NUMA nodes, in order. Returns how many there are, which may be
 * more than @room, of which @room were written; or -errno.
 */
int limits_nodes(const char *root, struct limits_node *nodes, int room);

/* ---- all alike ---- */

enum limit_kind {
	LIMIT_MEMLOCK,	     /* bytes registered with devices */
	LIMIT_MAPS,	     /* mappings */
	LIMIT_FILES,	     /* open files */
	LIMIT_CGROUP_MEMORY, /* bytes */
	LIMIT_PIDS,	     /* threads and processes in the control group */
	LIMIT_MEMORY,	     /* bytes free on the machine, and swap */
	LIMIT_HUGE_2M,	     /* pages */
	LIMIT_HUGE_1G,	     /* pages */
	LIMIT_KINDS
};

struct limit {
	const char *name, *unit;
	uint64_t needed, allowed, used; /* allowed may be LIMITS_NONE */
	char how_to_raise[768];
};

/* @needed: more than is in use now; it is only noted. */
int limit_read(const char *root, enum limit_kind which, uint64_t needed,
	       struct limit *limit);
bool limit_fits(const struct limit *limit);
/* "locked memory: 4096 bytes needed, 65536 allowed, 65536 in use; ulimit .." */
void limit_line(const struct limit *limit, char *line, size_t room);

/*
 * Whether @needed more are allowed: 0 (also when nothing limits it, or it
 * cannot be known), or -ENOMEM (LIMIT_FILES: -EMFILE, LIMIT_PIDS: -EAGAIN)
 * with a line that says what is needed, allowed and used, and how to raise it.
 */
int limit_check(const char *root, enum limit_kind which, uint64_t needed,
		char *line, size_t room);

/* ---- for the library's own checks ---- */

/* "" but in tests, which set it while nothing else runs. */
extern const char *limits_root;

/*
 * Will pinning @bytes for each of @devices devices fit RLIMIT_MEMLOCK? 0, or
 * vbn_fail(-ENOMEM) with a line that begins with @what.
 */
int limits_check_pinned(const char *what, size_t bytes, unsigned devices);

/*
 * To be called for each new mapping or registration, of which most cost one
 * atomic decrement: counts the mappings as often as is needed not to miss
 * the limit. Warns once above 90 % of it. 0, or vbn_fail(-ENOMEM) when none
 * is left; @what begins the line.
 */
int limits_check_maps(const char *what);

#endif
