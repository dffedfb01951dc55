/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forks in a running job, over any provider: run it as two ranks under
 * verbena-run. Rank 1 forks, rank 0 transfers. A line per case and rank, "ok"
 * or "not ok"; exits 1 if a case failed here.
 *
 *	fork descriptors PROVIDER N...
 *		the helper that the cases exec: fails if descriptors other than
 *		N... are open. UCX opens its own without O_CLOEXEC: over ucx
 *		those of the kinds that it uses are let pass.
 */
#include <verbena/transport.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS	 20000
#define PAGE	 4096
#define HALF	 2048
#define ROUNDS	 50
#define FDS_MAX	 64
#define POOL_LEN (PAGE * 64)

struct side {
	struct vbn_job *job;
	struct vbn_ctx *ctx;
	struct vbn_ep *ep;
	int rank;
	unsigned notified, awaited; /* notifies come, and waited for */
	bool failed;
};

static int open_at_start[FDS_MAX], nopen;
static const char *program;

/* ---- what the cases are made of ---- */

static bool check(struct side *s, bool good, const char *what)
{
	if (!good && !s->failed) {
		printf("rank %d: %s (last error: %s)\n", s->rank, what,
		       vbn_error());
		s->failed = true;
	}
	return good;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct side *s = arg;

	(void)from;
	(void)value;
	s->notified++;
}

static bool await_peer(struct side *s)
{
	double end = now() + WAIT_MS / 1e3;

	s->awaited++;
	while (s->notified < s->awaited && now() < end)
		vbn_ctx_wait(s->ctx, 100);
	return check(s, s->notified >= s->awaited, "no word from the peer");
}

static bool finish(struct side *s, struct vbn_op *op, int rc, const char *what)
{
	if (!rc)
		rc = vbn_wait(s->ctx, op, WAIT_MS);
	return check(s, rc == 0, what);
}

/* A put with a notify; of no bytes: the notify alone. */
static bool put(struct side *s, const void *from, size_t len,
		const struct vbn_rkey *to)
{
	double end = now() + WAIT_MS / 1e3;
	struct vbn_op op = {0};
	int rc;

	while ((rc = vbn_put_notify(s->ep, &op, from, len, to, 0,
				    VBN_CHANNEL_USER, 1, 0)) == -EAGAIN &&
	       now() < end)
		vbn_progress(s->ctx);
	return finish(s, &op, rc, "put");
}

static bool tell_peer(struct side *s)
{
	return put(s, NULL, 0, NULL);
}

static bool get(struct side *s, void *to, size_t len,
		const struct vbn_rkey *from)
{
	double end = now() + WAIT_MS / 1e3;
	struct vbn_op op = {0};
	int rc;

	while ((rc = vbn_get(s->ep, &op, to, len, from, 0, 0)) == -EAGAIN &&
	       now() < end)
		vbn_progress(s->ctx);
	return finish(s, &op, rc, "get");
}

/* Each rank's key of its memory, to the other. */
static bool swap_keys(struct side *s, const char *name, const void *mine,
		      size_t len, struct vbn_rkey *theirs)
{
	uint8_t packed[VBN_RKEY_BYTES];
	size_t room = sizeof(packed);
	struct vbn_rkey key;
	char at[64];

	if (!check(s, !vbn_rkey_of(s->job, mine, len, &key), "key"))
		return false;
	vbn_rkey_pack(&key, packed);
	snprintf(at, sizeof(at), "%s/%d", name, s->rank);
	if (!check(s, !vbn_job_set(s->job, at, packed, room, WAIT_MS), "set"))
		return false;
	snprintf(at, sizeof(at), "%s/%d", name, !s->rank);
	if (!check(s, !vbn_job_get(s->job, at, packed, &room, WAIT_MS), "get"))
		return false;
	vbn_rkey_unpack(theirs, packed);
	return true;
}

static bool is_all(const unsigned char *p, size_t len, unsigned char value)
{
	return p[0] == value && !memcmp(p, p + 1, len - 1);
}

struct child {
	pid_t pid;
	int go[2]; /* a byte: look now */
};

/* 0 in the child. */
static pid_t child_start(struct child *child)
{
	if (pipe2(child->go, O_CLOEXEC))
		return -1;
	child->pid = fork();
	return child->pid;
}

static void child_await(const struct child *child)
{
	char byte;

	if (read(child->go[0], &byte, 1) != 1)
		_exit(9);
}

/* Whether it has ended well. */
static bool child_end(struct child *child)
{
	int status = -1;

	if (write(child->go[1], "g", 1) != 1)
		return false;
	close(child->go[0]);
	close(child->go[1]);
	return waitpid(child->pid, &status, 0) == child->pid && !status;
}

/* ---- pool memory is shared with a child ---- */

/* In the child: sees what comes after the fork; its own writes are seen. */
static void pool_child(struct child *child, unsigned char *block)
{
	child_await(child);
	if (!is_all(block, POOL_LEN / 2, 0x22))
		_exit(1);
	memset(block + POOL_LEN / 2, 0x33, POOL_LEN / 2);
	_exit(0);
}

static void pool_forker(struct side *s, unsigned char *block)
{
	struct child child;

	memset(block, 0x11, POOL_LEN);
	if (child_start(&child) == 0)
		pool_child(&child, block);
	tell_peer(s);
	await_peer(s); /* 0x22 has come */
	check(s, is_all(block, POOL_LEN / 2, 0x22), "the parent's bytes");
	check(s, child_end(&child), "the child sees what came");
	check(s, is_all(block + POOL_LEN / 2, POOL_LEN / 2, 0x33),
	      "the child's writes are seen");
	tell_peer(s);
	await_peer(s);
}

static void pool_peer(struct side *s, unsigned char *block,
		      const struct vbn_rkey *key)
{
	await_peer(s);
	memset(block, 0x22, POOL_LEN / 2);
	put(s, block, POOL_LEN / 2, key);
	await_peer(s);
	get(s, block, POOL_LEN, key);
	check(s,
	      is_all(block, POOL_LEN / 2, 0x22) &&
		      is_all(block + POOL_LEN / 2, POOL_LEN / 2, 0x33),
	      "bytes got of memory that a child wrote");
	tell_peer(s);
}

static void case_pool(struct side *s)
{
	struct vbn_pool_options o = {.size = sizeof(o),
				     .access = VBN_ACCESS_ALL};
	struct vbn_pool *pool;
	struct vbn_rkey key;
	unsigned char *block;

	if (!check(s, !vbn_pool_create(&pool, s->job, &o), "pool"))
		return;
	block = vbn_pool_alloc(pool, POOL_LEN, 0);
	if (check(s, block != NULL, "allocation") &&
	    swap_keys(s, "pool", block, POOL_LEN, &key)) {
		if (s->rank == 1)
			pool_forker(s, block);
		else
			pool_peer(s, block, &key);
	}
	vbn_job_fence(s->job, WAIT_MS);
	vbn_pool_destroy(pool);
}

/* ---- half a page of ordinary memory is registered ---- */

/* The child has its own copy: as it was, and as it writes it. */
static void half_child(struct child *child, unsigned char *page)
{
	memset(page + HALF, 0xcc, HALF);
	child_await(child);
	_exit(is_all(page, HALF, 0x01) && is_all(page + HALF, HALF, 0xcc) ? 0
									  : 1);
}

static void half_forker(struct side *s, unsigned char *page,
			const struct vbn_rkey *key)
{
	struct child child;

	memset(page, 0x01, HALF);
	memset(page + HALF, 0x02, HALF);
	tell_peer(s);
	await_peer(s); /* has used the memory before the fork */
	if (child_start(&child) == 0)
		half_child(&child, page);
	for (int round = 0; round < ROUNDS && !s->failed; round++) {
		unsigned char value = (unsigned char)(0x40 + round);

		/* what the parent writes now is what the peer gets */
		memset(page, value, HALF);
		memset(page + HALF, 0xdd, HALF);
		put(s, page, HALF, key);
		await_peer(s); /* got it, too, and has put */
		check(s, is_all(page, HALF, value ^ 0xff),
		      "the parent's half after a put to it");
		check(s, is_all(page + HALF, HALF, 0xdd),
		      "the half that is not registered");
	}
	check(s, child_end(&child), "the child's copy");
	tell_peer(s);
	await_peer(s);
}

static void half_peer(struct side *s, unsigned char *page,
		      const struct vbn_rkey *key)
{
	static unsigned char bytes[HALF];

	await_peer(s);
	get(s, bytes, HALF, key);
	check(s, is_all(bytes, HALF, 0x01), "got before the fork");
	memset(bytes, 0x01, HALF);
	put(s, bytes, HALF, key);
	for (int round = 0; round < ROUNDS && !s->failed; round++) {
		unsigned char value = (unsigned char)(0x40 + round);

		await_peer(s);
		check(s, is_all(page, HALF, value), "put by the parent");
		get(s, bytes, HALF, key);
		check(s, is_all(bytes, HALF, value), "got from the parent");
		memset(bytes, value ^ 0xff, HALF);
		put(s, bytes, HALF, key);
	}
	await_peer(s);
	tell_peer(s);
}

static void case_half_page(struct side *s)
{
	unsigned char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct vbn_rkey key;
	struct vbn_mem *mem;

	if (!check(s,
		   page != MAP_FAILED &&
			   !vbn_mem_register(&mem, s->job, page, HALF,
					     VBN_ACCESS_ALL),
		   "registration"))
		return;
	if (swap_keys(s, "half", page, HALF, &key)) {
		if (s->rank == 1)
			half_forker(s, page, &key);
		else
			half_peer(s, page, &key);
	}
	vbn_job_fence(s->job, WAIT_MS);
	vbn_mem_deregister(mem);
	munmap(page, PAGE);
}

/* ---- exec ---- */

static bool is_ucx_own(const char *target)
{
	static const char *const kinds[] = {
		"anon_inode:[eventpoll]", "anon_inode:[timerfd]",
		"socket:", "pipe:", "anon_inode:inotify"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strncmp(target, kinds[i], strlen(kinds[i])))
			return true;
	return false;
}

static bool is_listed(int fd, char **list)
{
	for (; *list; list++)
		if (atoi(*list) == fd)
			return true;
	return false;
}

/* The helper. */
static int descriptors(const char *provider, char **allowed)
{
	bool ucx = !strcmp(provider, "ucx");
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int bad = 0;

	while (dir && (entry = readdir(dir))) {
		char path[300], target[256] = "";
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] == '.' || fd == dirfd(dir) ||
		    is_listed(fd, allowed))
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) < 0 ||
		    (ucx && is_ucx_own(target)))
			continue;
		printf("descriptor %d is inherited: %s\n", fd, target);
		bad = 1;
	}
	if (dir)
		closedir(dir);
	return dir ? bad : 1;
}

/* Run the helper; whether it found nothing that it should not have. */
static bool run_helper(struct side *s)
{
	char numbers[FDS_MAX][16], *args[FDS_MAX + 4];
	int n = 0, status = -1;
	pid_t pid;

	args[n++] = (char *)program;
	args[n++] = (char *)"descriptors";
	args[n++] = (char *)vbn_ep_provider(s->ep);
	for (int i = 0; i < nopen; i++) {
		snprintf(numbers[i], sizeof(numbers[i]), "%d",
			 open_at_start[i]);
		args[n++] = numbers[i];
	}
	args[n] = NULL;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		execv(program, args);
		_exit(9);
	}
	return waitpid(pid, &status, 0) == pid && !status;
}

/* What this program was started with, but the launcher's listening socket. */
static void note_descriptors(void)
{
	const char *listening = getenv("VBN_LISTEN_FD");

	for (int fd = 0; fd < 1024 && nopen < FDS_MAX; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (flags >= 0 && !(flags & FD_CLOEXEC) &&
		    !(listening && atoi(listening) == fd))
			open_at_start[nopen++] = fd;
	}
}

static bool ping_pong(struct side *s, int rounds)
{
	for (int i = 0; i < rounds && !s->failed; i++) {
		if (s->rank == 0)
			tell_peer(s);
		await_peer(s);
		if (s->rank == 1)
			tell_peer(s);
	}
	return !s->failed;
}

/* With a slab, whose descriptor a helper must not get either. */
static void case_exec(struct side *s)
{
	struct vbn_pool *pool;

	if (!check(s, !vbn_pool_create(&pool, s->job, NULL), "pool"))
		return;
	check(s, vbn_pool_alloc(pool, PAGE, 0) != NULL, "allocation");
	ping_pong(s, 3);
	check(s, run_helper(s), "a helper inherits descriptors");
	ping_pong(s, 100);
	vbn_pool_destroy(pool);
}

static void *keep_forking(void *arg)
{
	struct side *s = arg;

	for (int i = 0; i < 10; i++)
		if (!run_helper(s))
			return NULL;
	return arg;
}

/* Helpers come and go on another thread while operations are under way. */
static void case_exec_meanwhile(struct side *s)
{
	pthread_t thread;
	void *good = NULL;

	if (!check(s, !pthread_create(&thread, NULL, keep_forking, s),
		   "thread"))
		return;
	ping_pong(s, 2000);
	pthread_join(thread, &good);
	check(s, good != NULL, "helpers that run during transfers");
	ping_pong(s, 10);
}

/* ---- main ---- */

static const struct {
	const char *name;
	void (*run)(struct side *s);
} cases[] = {
	{"exec", case_exec},
	{"exec-meanwhile", case_exec_meanwhile},
	{"pool-memory", case_pool},
	{"half-page", case_half_page},
};

static int connect_peer(struct side *s)
{
	int rc = vbn_job_open(&s->job, NULL);

	if (rc)
		return rc;
	s->rank = vbn_job_rank(s->job);
	if (vbn_job_size(s->job) != 2)
		return -EINVAL;
	rc = vbn_ctx_open(&s->ctx, s->job, NULL);
	if (!rc)
		rc = vbn_notify_handler(s->ctx, VBN_CHANNEL_USER, on_notify, s);
	if (!rc)
		rc = vbn_ep_open(&s->ep, s->ctx, !s->rank, 0);
	return rc ? rc : vbn_ep_connect(s->ep, WAIT_MS);
}

int main(int argc, char **argv)
{
	struct side s = {0};
	int failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc >= 3 && !strcmp(argv[1], "descriptors"))
		return descriptors(argv[2], argv + 3);
	program = "/proc/self/exe";
	note_descriptors();
	if (connect_peer(&s)) {
		fprintf(stderr, "fork: needs two ranks: %s\n", vbn_error());
		return 2;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		s.failed = false;
		check(&s, !vbn_job_fence(s.job, WAIT_MS), "fence");
		if (!s.failed)
			cases[i].run(&s);
		printf("%s %s\n", s.failed ? "not ok" : "ok", cases[i].name);
		failed += s.failed;
		if (s.failed)
			break; /* the peers are out of step */
	}
	vbn_job_fence(s.job, WAIT_MS);
	vbn_ep_close(s.ep);
	vbn_ctx_close(s.ctx);
	vbn_job_close(s.job);
	return failed ? 1 : 0;
}
